#include "launch/restart_policy.h"

#include <sysexits.h>

#include <algorithm>

#include "launch/exit_codes.h"

namespace lockstep::tool {

std::optional<Duration> RestartPolicy::next(Time now) {
  while (!restarts_.empty() && now - restarts_.front() >= kWindow) restarts_.pop_front();
  if (static_cast<int>(restarts_.size()) >= max_restarts_) return std::nullopt;
  Duration wait = kFirstWait;
  for (std::size_t i = 0; i < restarts_.size() && wait < kLongestWait; ++i) wait *= 2;
  restarts_.push_back(now);
  return std::min(wait, kLongestWait);
}

bool worth_a_restart(const sys::ExitStatus& status) noexcept {
  if (status.how != sys::ExitStatus::How::exited) return true;
  return status.value != kExitUsage && status.value != kExitNotExecutable &&
         status.value != kExitNotFound && status.value != EX_CONFIG;
}

}  // namespace lockstep::tool
