// What the operating system refused, as a Status: what was tried, the cause in words, what to do.
//
//   if (fd < 0) raise(os_error("cannot open " + path, errno));
//   // cannot open /data/x: No space left on device (ENOSPC); free some space or choose another
//   disk
#pragma once

#include <cerrno>
#include <string_view>

#include "base/status.h"

namespace lockstep::sys {

/// A SystemError with the canonical code closest to the errno.
Status os_error(std::string_view what, int error);

/// Repeats a call that a signal interrupted.
template <class Call>
auto retry_on_signal(Call&& call) {
  for (;;) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

}  // namespace lockstep::sys
