// Clock: where time comes from. The real one is monotonic; the simulated one lives in sim/.
#pragma once

#include <chrono>

namespace lockstep {

/// A point on a clock's own axis. Virtual clocks start at the epoch.
using Time = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual Time now() const noexcept = 0;
};

/// CLOCK_MONOTONIC: unaffected by jumps of the wall clock.
class MonotonicClock final : public Clock {
 public:
  [[nodiscard]] Time now() const noexcept override { return std::chrono::steady_clock::now(); }
};

}  // namespace lockstep
