// A program of somebody who has only the installed headers and library.
#include <lockstep/dtype.h>
#include <lockstep/error.h>

#include <cstdio>

int main() {
  try {
    throw lockstep::Timeout("late");
  } catch (const lockstep::Error& e) {
    std::printf("%s %s\n", lockstep::to_string(e.kind()).data(),
                lockstep::to_string(lockstep::dtype_of<float>).data());
  }
}
