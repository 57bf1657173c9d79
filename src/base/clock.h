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

namespace detail {
/// Of a thread that belongs to a simulation (scheduler.h), else null.
inline thread_local constinit const Clock* virtual_clock = nullptr;
}  // namespace detail

/// CLOCK_MONOTONIC: unaffected by jumps of the wall clock. In a simulation: its virtual time.
class MonotonicClock final : public Clock {
 public:
  [[nodiscard]] Time now() const noexcept override {
    const Clock* simulated = detail::virtual_clock;
    return simulated == nullptr ? std::chrono::steady_clock::now() : simulated->now();
  }
};

}  // namespace lockstep
