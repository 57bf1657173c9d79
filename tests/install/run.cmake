# Installs BUILD into a temporary prefix and builds the project FOREIGN against it.
cmake_minimum_required(VERSION 3.25)

# Runs a command; a failure ends the test and shows what the command said.
function(must)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed: ${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# The same, for a command that has to fail and say why.
function(must_fail expected)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  if(result EQUAL 0 OR NOT output MATCHES "${expected}")
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "should have failed with \"${expected}\": ${command}\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
must(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
# Moved: an installed tree must not remember where it was installed.
file(RENAME ${WORK}/first ${WORK}/prefix)

set(configure ${CMAKE_COMMAND} -G Ninja -S ${FOREIGN} -DCMAKE_PREFIX_PATH=${WORK}/prefix
    -DCMAKE_CXX_COMPILER=${COMPILER} -DEXPECTED_VERSION=${VERSION})
must(${configure} -B ${WORK}/build -DCOMPONENT=coll)
must(${CMAKE_COMMAND} --build ${WORK}/build)
must(${WORK}/build/foreign)
message(STATUS "the foreign program says: ${output}")

if(TORCH)
  must(${configure} -B ${WORK}/torch -DCOMPONENT=torch)
  must(${CMAKE_COMMAND} --build ${WORK}/torch)
  must(${WORK}/torch/foreign)
  message(STATUS "the foreign program with torch says: ${output}")
else()
  must_fail("was built without torch" ${configure} -B ${WORK}/torch -DCOMPONENT=torch)
endif()
if(MPI)
  must(${configure} -B ${WORK}/mpi -DCOMPONENT=mpi)
  must(${CMAKE_COMMAND} --build ${WORK}/mpi)
  must(${MPI} -n 2 ${WORK}/mpi/foreign)
  message(STATUS "the foreign program with MPI says: ${output}")
else()
  must_fail("was built without MPI" ${configure} -B ${WORK}/mpi -DCOMPONENT=mpi)
endif()
must_fail("has no component nonsense, only coll" ${configure} -B ${WORK}/nonsense -DCOMPONENT=nonsense)
must_fail("compatible with requested version" ${configure} -B ${WORK}/old -DCOMPONENT=coll -DEXPECTED_VERSION=99.0)
