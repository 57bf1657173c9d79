# How a layer, a test and a benchmark of lockstep are declared.
#
#   lockstep_layer(plan SOURCES ring.cc check.cc USES base)
#   lockstep_test(plan SOURCES check_test.cc USES plan)
#   lockstep_bench(gate SOURCES bench_gate.cc USES base)            # program bench_gate
#   lockstep_fuzz(frame SOURCES fuzz_frame.cc USES wire)            # program fuzz_frame

find_program(LOCKSTEP_CCACHE ccache)
if(LOCKSTEP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${LOCKSTEP_CCACHE})
endif()

# Compiler settings shared by every target of ours; nothing here reaches a user's build.
function(lockstep_compile_settings target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  # Contracting a*b+c into one rounding would give other bits on other processors.
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -ffp-contract=off
    $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>  # g++ 12 sees overlaps in std::string's own operator+
    $<$<BOOL:${LOCKSTEP_WERROR}>:-Werror>)
  if(LOCKSTEP_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer
      -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=${LOCKSTEP_SANITIZE})
  endif()
  if(LOCKSTEP_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> PRIVATE ${PROJECT_SOURCE_DIR}/src)
endfunction()

# libtorch's headers take longer to compile than our own code. So the torch half is compiled several
# sources at a time. Every source stays compilable alone: the tidy build compiles each by itself.
option(LOCKSTEP_UNITY "Compile several sources that include libtorch as one" ON)
function(lockstep_compile_together target)
  if(LOCKSTEP_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
endfunction()

# One static library a layer; USES names the layers it stands on, LINKS third-party targets,
# PUBLIC_LINKS the third-party targets whose headers the layer's own headers include. TORCH: its
# sources include libtorch.
function(lockstep_layer name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;USES;LINKS;PUBLIC_LINKS" ${ARGN})
  add_library(lockstep_${name} STATIC ${ARG_SOURCES})
  lockstep_compile_settings(lockstep_${name})
  if(ARG_TORCH)
    lockstep_compile_together(lockstep_${name})
  endif()
  foreach(used IN LISTS ARG_USES)
    target_link_libraries(lockstep_${name} PUBLIC lockstep_${used})
  endforeach()
  target_link_libraries(lockstep_${name} PUBLIC ${ARG_PUBLIC_LINKS} PRIVATE fmt::fmt ${ARG_LINKS})
endfunction()

# A GoogleTest binary tests/<name>; each TEST becomes a ctest of its own. LABEL defaults to "fast".
# ONE_PROCESS makes it one ctest instead: a process with libtorch takes half a second to start. ALONE:
# nothing else runs beside it.
function(lockstep_test name)
  cmake_parse_arguments(ARG "ONE_PROCESS;ALONE" "LABEL;TIMEOUT" "SOURCES;USES;LINKS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL fast)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_executable(test_${name} ${ARG_SOURCES})
  lockstep_compile_settings(test_${name})
  foreach(used IN LISTS ARG_USES)
    target_link_libraries(test_${name} PRIVATE lockstep_${used})
  endforeach()
  target_link_libraries(test_${name} PRIVATE fmt::fmt GTest::gmock GTest::gtest_main ${ARG_LINKS})
  target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  if(ARG_ONE_PROCESS)
    add_test(NAME ${name} COMMAND test_${name} --gtest_brief=1)
    set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
  else()
    gtest_discover_tests(test_${name} TEST_PREFIX ${name}/ DISCOVERY_TIMEOUT 60
      PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT} RUN_SERIAL ${ARG_ALONE})
  endif()
endfunction()

# A benchmark bench_<name>: prints a table and, where there is a target, whether it was met; exit
# code 1 if not. LINKS benchmark::benchmark for the ones written with google-benchmark.
function(lockstep_bench name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES;LINKS" ${ARGN})
  add_executable(bench_${name} ${ARG_SOURCES})
  lockstep_compile_settings(bench_${name})
  foreach(used IN LISTS ARG_USES)
    target_link_libraries(bench_${name} PRIVATE lockstep_${used})
  endforeach()
  target_link_libraries(bench_${name} PRIVATE fmt::fmt ${ARG_LINKS})
  target_include_directories(bench_${name} PRIVATE ${PROJECT_SOURCE_DIR})
endfunction()

# A libFuzzer program fuzz_<name>, built with LOCKSTEP_FUZZ only; `make fuzz` runs them all.
function(lockstep_fuzz name)
  if(NOT LOCKSTEP_FUZZ)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;USES;LINKS" ${ARGN})
  add_executable(fuzz_${name} ${ARG_SOURCES})
  lockstep_compile_settings(fuzz_${name})
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  foreach(used IN LISTS ARG_USES)
    target_link_libraries(fuzz_${name} PRIVATE lockstep_${used})
  endforeach()
  target_link_libraries(fuzz_${name} PRIVATE fmt::fmt ${ARG_LINKS})
  if(NOT TARGET fuzzers)
    add_custom_target(fuzzers)
  endif()
  add_dependencies(fuzzers fuzz_${name})
endfunction()
