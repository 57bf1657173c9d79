// Here: the place in the user's program that made a call, for error messages.
//
//   void barrier(Here here = Here::now());     // captures the caller's file and line
#pragma once

namespace lockstep {

struct Here {
  const char* file = "";
  int line = 0;

  static constexpr Here now(const char* file = __builtin_FILE(),
                            int line = __builtin_LINE()) noexcept {
    return {file, line};
  }
};

}  // namespace lockstep
