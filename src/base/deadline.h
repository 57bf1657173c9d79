// Deadline: the moment a wait gives up. Absolute, so that it can be handed down through any number
// of waits without adding up; every wait of lockstep takes one.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace lockstep {

class Deadline {
 public:
  static constexpr Deadline at(Time time) noexcept { return Deadline(time); }
  /// Saturates: a duration too long for the clock is never().
  static constexpr Deadline after(Time from, Duration wait) noexcept {
    return wait >= Time::max() - from ? never() : Deadline(from + wait);
  }
  static Deadline after(const Clock& clock, Duration wait) noexcept {
    return after(clock.now(), wait);
  }
  static Deadline after(Duration wait) noexcept { return after(MonotonicClock(), wait); }
  /// For waits that something else is certain to end; there are few, each says what.
  static constexpr Deadline never() noexcept { return Deadline(Time::max()); }

  [[nodiscard]] constexpr Time time() const noexcept { return time_; }
  [[nodiscard]] constexpr bool is_never() const noexcept { return time_ == Time::max(); }
  [[nodiscard]] constexpr bool passed(Time now) const noexcept { return now >= time_; }
  [[nodiscard]] bool passed() const noexcept { return passed(MonotonicClock().now()); }

  friend constexpr Deadline earlier(Deadline a, Deadline b) noexcept {
    return Deadline(std::min(a.time_, b.time_));
  }

 private:
  explicit constexpr Deadline(Time time) noexcept : time_(time) {}
  Time time_;
};

}  // namespace lockstep
