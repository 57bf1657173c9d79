// Exit codes with a meaning, as shells use them.
#pragma once

#include "sys/proc.h"

namespace lockstep::tool {

inline constexpr int kExitUsage = 2;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;
inline constexpr int kExitSignalled = 128;  // plus the number of the signal

/// What a shell would exit with after this.
inline int exit_code_of(const sys::ExitStatus& status) noexcept {
  switch (status.how) {
    case sys::ExitStatus::How::exited:
      return status.value;
    case sys::ExitStatus::How::signalled:
      return kExitSignalled + status.value;
    case sys::ExitStatus::How::unknown:
      break;
  }
  return 1;
}

}  // namespace lockstep::tool
