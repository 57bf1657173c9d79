# Compiles CASE.cc with its mistake: it must not compile, and the first error must match the regex SAYS.
cmake_minimum_required(VERSION 3.25)

set(precompiled "")
if(USE_PRECOMPILED AND ID STREQUAL "Clang")
  set(precompiled -include-pch ${PRECOMPILED}.pch)
elseif(USE_PRECOMPILED)
  set(precompiled -include ${PRECOMPILED})
endif()
execute_process(COMMAND ${COMPILER} ${FLAGS} ${precompiled} -fsyntax-only -Wfatal-errors -DMISTAKE
    ${CMAKE_CURRENT_LIST_DIR}/${CASE}.cc
  RESULT_VARIABLE result ERROR_VARIABLE output)
if(result EQUAL 0)
  message(FATAL_ERROR "compiles with the mistake")
endif()
string(REGEX MATCH "error: [^\n]*" first "${output}")
if(NOT first MATCHES "${SAYS}")
  message(FATAL_ERROR "the first error does not say '${SAYS}':\n${output}")
endif()
message(STATUS "${first}")
