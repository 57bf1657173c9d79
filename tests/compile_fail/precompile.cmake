# Precompiles HEADER to PRECOMPILED.gch (g++) or PRECOMPILED.pch (clang), unless it is there and newer than
# everything in INCLUDE.
cmake_minimum_required(VERSION 3.25)

set(result_file "${PRECOMPILED}.gch")
if(ID STREQUAL "Clang")
  set(result_file "${PRECOMPILED}.pch")
endif()
file(GLOB_RECURSE headers "${INCLUDE}/*.h")
set(current TRUE)
foreach(header IN LISTS headers ITEMS ${HEADER} ${CMAKE_CURRENT_LIST_FILE})
  if("${header}" IS_NEWER_THAN "${result_file}")  # also if there is none
    set(current FALSE)
  endif()
endforeach()
if(current)
  return()
endif()

get_filename_component(directory "${PRECOMPILED}" DIRECTORY)
file(MAKE_DIRECTORY "${directory}")
# g++ looks for the header's name and finds the precompiled one beside it.
file(COPY_FILE "${HEADER}" "${PRECOMPILED}")
execute_process(COMMAND ${COMPILER} ${FLAGS} -x c++-header ${PRECOMPILED} -o ${result_file}
  RESULT_VARIABLE result ERROR_VARIABLE output)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${output}")
endif()
