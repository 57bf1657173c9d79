#include "sys/descriptor_limit.h"

#include <sys/resource.h>

#include <algorithm>

namespace lockstep::sys {

std::uint64_t raise_descriptor_limit(std::uint64_t wanted) noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t before = limit.rlim_cur;
  const rlim_t raised = std::min<rlim_t>(wanted, limit.rlim_max);
  if (before >= raised) return before;
  limit.rlim_cur = raised;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 ? raised : before;
}

}  // namespace lockstep::sys
