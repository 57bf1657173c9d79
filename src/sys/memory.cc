#include "sys/memory.h"

#include <malloc.h>

#include "base/env.h"

namespace lockstep::sys {

void keep_freed_memory() noexcept {
#if defined(__GLIBC__)
  if (environment().allocator_is_tuned) return;
  static const bool once = [] {
    constexpr int kMiB = 1 << 20;
    mallopt(M_MMAP_THRESHOLD, 32 * kMiB);  // the most it takes
    mallopt(M_TRIM_THRESHOLD, 1024 * kMiB);
    // A thread other than the first gives back what it has in pieces of 64 MiB, whatever the
    // threshold, unless it is to keep more than that.
    mallopt(M_TOP_PAD, 128 * kMiB);
    mallopt(M_MMAP_MAX, 0);  // not for larger blocks either: gradients of large layers
    return true;
  }();
  (void)once;
#endif
}

}  // namespace lockstep::sys
