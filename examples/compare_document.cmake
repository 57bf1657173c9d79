# Fails unless one of the ```cpp blocks of DOCUMENT is EXAMPLE, byte for byte.
cmake_minimum_required(VERSION 3.25)
file(READ "${DOCUMENT}" readme)
file(READ "${EXAMPLE}" example)
string(FIND "${readme}" "```cpp\n${example}```" found)
if(found EQUAL -1)
  message(FATAL_ERROR "no program in ${DOCUMENT} is ${EXAMPLE}: copy one over the other")
endif()
