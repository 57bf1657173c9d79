# Runs a job: it must end within SECONDS, well or not (VERDICT ends_well, fails; ends: either), and
# have said everything in SAYS, and NEVER what stands there. (CTest's PASS_REGULAR_EXPRESSION alone
# would not look at the exit code.)
#
#   cmake -DVERDICT=fails "-DSAYS=one;another" -DSECONDS=20 -P run_job.cmake -- mpirun -n 3 program case
cmake_minimum_required(VERSION 3.25)

set(command "")
set(reading FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(reading)
    list(APPEND command "${CMAKE_ARGV${i}}")
  elseif(CMAKE_ARGV${i} STREQUAL "--")
    set(reading TRUE)
  endif()
endforeach()

execute_process(COMMAND ${command} TIMEOUT ${SECONDS} RESULT_VARIABLE result
  OUTPUT_VARIABLE output ERROR_VARIABLE output)
message(STATUS "${result}\n${output}")
if(result MATCHES "timeout")
  message(FATAL_ERROR "the job did not end within ${SECONDS} s")
endif()
if(VERDICT STREQUAL "fails" AND result EQUAL 0)
  message(FATAL_ERROR "the job should have failed")
elseif(VERDICT STREQUAL "ends_well" AND NOT result EQUAL 0)
  message(FATAL_ERROR "the job should have ended well, not with ${result}")
endif()
if(NEVER AND output MATCHES "${NEVER}")
  message(FATAL_ERROR "somebody said: ${NEVER}")
endif()
foreach(text IN LISTS SAYS)
  if(NOT output MATCHES "${text}")
    message(FATAL_ERROR "nobody said: ${text}")
  endif()
endforeach()
