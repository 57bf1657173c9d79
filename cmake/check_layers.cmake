# Fails if a file includes a layer that it must not know.
#
#   cmake -DROOT=<source tree> -P cmake/check_layers.cmake
#
# A layer may include itself and the layers named here, nothing else. Public headers
# ("lockstep/...") are open to everybody; they may include only each other.

cmake_minimum_required(VERSION 3.25)

set(base "")
set(sys base)
set(sim base sys)
foreach(layer kernel plan wire cluster format)
  set(${layer} base sys)
endforeach()
set(transport base sys kernel plan wire cluster format)
set(coll ${transport} transport)
set(engines ${coll} coll)
set(tensor ${coll} coll)
set(strategy ${tensor} tensor)
set(input ${strategy} strategy)
set(train ${input} input)
set(layers base sys sim kernel plan wire cluster format transport coll engines tensor
    strategy input train)

# Outside src/ only the public headers may be used, with exceptions: the command prints and
# proves plans (`lockstep explain`, `lockstep plans`), and they have no public form; benchmarks
# measure kernels and waiting below the public API. Tests may include anything.
set(tools_may plan)

# The launcher starts and watches processes and hands out clusters and keys: that is sys, cluster and
# transport, and no business of the public API. Its folder may use them, the rest of the command may not.
set(launch_may base sys cluster transport)

# The doctor looks below joining: what names resolve to, who can call whom, keys, cores, memory.
set(doctor_may base sys cluster)

set(violations "")

# Reports every #include of `file` that goes to a layer outside the list `allowed`, or by "..".
function(check_file file allowed)
  file(STRINGS "${ROOT}/${file}" includes REGEX "^[ \t]*#[ \t]*include[ \t]*[\"<]")
  foreach(line IN LISTS includes)
    string(REGEX REPLACE "^[^\"<]*[\"<]([^\">]*).*$" "\\1" target "${line}")
    string(REGEX REPLACE "/.*$" "" layer "${target}")
    if(line MATCHES "<sys/")  # the C library's folder, not our layer
      continue()
    endif()
    if(target MATCHES "^\\.\\." OR (layer IN_LIST layers AND NOT layer IN_LIST allowed))
      file(READ "${ROOT}/${file}" text)
      string(FIND "${text}" "${line}" position)
      string(SUBSTRING "${text}" 0 ${position} before)
      string(REGEX REPLACE "[^\n]" "" newlines "${before}")
      string(LENGTH "${newlines}" number)
      math(EXPR number "${number} + 1")
      list(APPEND violations "${file}:${number}: must not include ${target}")
    endif()
  endforeach()
  set(violations "${violations}" PARENT_SCOPE)
endfunction()

if(NOT DEFINED ROOT OR NOT IS_DIRECTORY "${ROOT}/src")
  message(FATAL_ERROR "check_layers: ROOT must name the source tree")
endif()

file(GLOB_RECURSE sources RELATIVE "${ROOT}"
  "${ROOT}/src/*.h" "${ROOT}/src/*.cc" "${ROOT}/include/*.h"
  "${ROOT}/tools/*.h" "${ROOT}/tools/*.cc" "${ROOT}/examples/*.h" "${ROOT}/examples/*.cc")
foreach(file IN LISTS sources)
  if(file MATCHES "^src/([a-z_]+)/")
    set(layer ${CMAKE_MATCH_1})
    if(NOT layer IN_LIST layers)
      list(APPEND violations "${file}:1: src/${layer} is no layer; name it in cmake/check_layers.cmake")
    else()
      check_file("${file}" "${layer};${${layer}}")
    endif()
  elseif(file MATCHES "^tools/lockstep/launch/")
    check_file("${file}" "${launch_may}")
  elseif(file MATCHES "^tools/lockstep/doctor/")
    check_file("${file}" "${doctor_may}")
  elseif(file MATCHES "^tools/")
    check_file("${file}" "${tools_may}")
  else()
    check_file("${file}" "")
  endif()
endforeach()

list(LENGTH sources count)
if(violations)
  list(JOIN violations "\n  " text)
  message(FATAL_ERROR "layering, see docs/architecture.md:\n  ${text}")
endif()
message(STATUS "layering: ${count} files, no violation")
