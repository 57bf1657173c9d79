# Fails unless one of the ```cpp blocks of README is EXAMPLE, byte for byte.
cmake_minimum_required(VERSION 3.25)
file(READ "${README}" readme)
file(READ "${EXAMPLE}" example)
string(FIND "${readme}" "```cpp\n${example}```" found)
if(found EQUAL -1)
  message(FATAL_ERROR "no program in ${README} is ${EXAMPLE}: copy one over the other")
endif()
