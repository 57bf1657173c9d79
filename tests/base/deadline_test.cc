#include "base/deadline.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace): literals only

class StoppedClock final : public Clock {
 public:
  explicit StoppedClock(Duration since_epoch) : now_(since_epoch) {}
  [[nodiscard]] Time now() const noexcept override { return now_; }

 private:
  Time now_;
};

TEST(Deadline, PassesAtItsTimeNotBefore) {
  const Deadline deadline = Deadline::after(StoppedClock(10s), 5s);
  EXPECT_FALSE(deadline.passed(Time(15s) - 1ns));
  EXPECT_TRUE(deadline.passed(Time(15s)));
  EXPECT_TRUE(deadline.passed(Time(16s)));
}

TEST(Deadline, OfNoTimeHasPassed) {
  EXPECT_TRUE(Deadline::after(0s).passed());
  EXPECT_TRUE(Deadline::after(-1h).passed());
  EXPECT_TRUE(Deadline::after(StoppedClock(10s), Duration::min()).passed(Time(0s)));
  EXPECT_FALSE(Deadline::after(1h).passed());
}

TEST(Deadline, TooFarAwaySaturatesToNever) {
  const Duration longest = Duration::max();
  EXPECT_TRUE(Deadline::after(longest).is_never());
  EXPECT_TRUE(Deadline::after(StoppedClock(10s), longest - 10s).is_never());
  EXPECT_FALSE(Deadline::after(StoppedClock(10s), longest - 10s - 1ns).is_never());
  EXPECT_TRUE(Deadline::after(StoppedClock(longest), 1ns).is_never());
}

TEST(Deadline, NeverHasNotPassedOnAnyClock) {
  EXPECT_FALSE(Deadline::never().passed());
  EXPECT_FALSE(Deadline::never().passed(Time::max() - 1ns));
  EXPECT_FALSE(Deadline::at(Time(1s)).is_never());
}

TEST(Deadline, EarlierOfTwo) {
  const Deadline soon = Deadline::at(Time(1s));
  const Deadline late = Deadline::at(Time(2s));
  EXPECT_EQ(earlier(soon, late).time(), soon.time());
  EXPECT_EQ(earlier(late, soon).time(), soon.time());
  EXPECT_EQ(earlier(Deadline::never(), late).time(), late.time());
}

TEST(MonotonicClock, DoesNotGoBack) {
  const MonotonicClock clock;
  Time last = clock.now();
  for (int i = 0; i < 1000; ++i) {
    const Time now = clock.now();
    ASSERT_GE(now, last);
    last = now;
  }
}

}  // namespace
}  // namespace lockstep
