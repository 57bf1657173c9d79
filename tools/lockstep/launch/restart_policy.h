// RestartPolicy: how often and how soon failed ranks are started again.
//
//   RestartPolicy policy(3);
//   if (auto wait = policy.next(now)) ...           // 1 s, then 2 s, then 4 s; then empty
//
// Restarts older than ten minutes no longer count. A plain object of one thread.
#pragma once

#include <chrono>
#include <deque>
#include <optional>

#include "base/clock.h"
#include "sys/proc.h"

namespace lockstep::tool {

class RestartPolicy {
 public:
  static constexpr Duration kWindow = std::chrono::minutes(10);
  static constexpr Duration kFirstWait = std::chrono::seconds(1);
  static constexpr Duration kLongestWait = std::chrono::seconds(30);

  explicit RestartPolicy(int max_restarts) : max_restarts_(max_restarts) {}

  /// How long to wait before the next start; empty if there were enough.
  std::optional<Duration> next(Time now);

 private:
  int max_restarts_;
  std::deque<Time> restarts_;  // within the window
};

/// Not where starting again cannot help: a wrong command line (2), a wrong configuration (78,
/// EX_CONFIG), a program that cannot be run (126) or is not there (127).
bool worth_a_restart(const sys::ExitStatus& status) noexcept;

}  // namespace lockstep::tool
