# Finds an MPI that has not told pkg-config of itself, with CMake's own module: MPI_CXX_FOUND and its
# variables. LOCKSTEP_MPI_MISSING says why there is none, if a part of one is installed.
#
# FindMPI ends the configuration where a compiler wrapper names folders that do not exist, which
# Debian's openmpi-bin does without libopenmpi-dev. So the wrapper has to compile <mpi.h> first.
macro(lockstep_find_mpi)
  set(LOCKSTEP_MPI_MISSING "")
  find_program(LOCKSTEP_MPI_WRAPPER NAMES ${MPI_CXX_COMPILER} mpicxx mpic++ mpiCXX mpiCC)
  mark_as_advanced(LOCKSTEP_MPI_WRAPPER)
  if(LOCKSTEP_MPI_WRAPPER)
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/mpi_header.cc "#include <mpi.h>\n")
    execute_process(COMMAND ${LOCKSTEP_MPI_WRAPPER} -c mpi_header.cc -o mpi_header.o
      WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}
      RESULT_VARIABLE lockstep_mpi_result OUTPUT_QUIET ERROR_QUIET TIMEOUT 60)
    if(NOT lockstep_mpi_result EQUAL 0)
      set(LOCKSTEP_MPI_MISSING "${LOCKSTEP_MPI_WRAPPER} does not find mpi.h: an MPI is installed without its headers")
    endif()
  endif()
  if(NOT LOCKSTEP_MPI_MISSING)
    set(MPI_CXX_SKIP_MPICXX ON)
    find_package(MPI QUIET COMPONENTS CXX)
  endif()
endmacro()
