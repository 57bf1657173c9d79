#include "transport/stage.h"

#include <gtest/gtest.h>

#include <random>

namespace lockstep::transport {
namespace {

TEST(Stage, SlotsFollowEachOtherAndStartAgain) {
  Stage stage(1024);
  EXPECT_EQ(stage.bytes(), 3072U);
  EXPECT_EQ(stage.next(1000), 0U);
  EXPECT_EQ(stage.next(1000), 1024U) << "on a cache line of its own";
  EXPECT_EQ(stage.next(100), 2048U);
  EXPECT_EQ(stage.next(1024), 0U) << "does not fit behind it";
}

TEST(Stage, TwoInARowNeverOverlap) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    constexpr std::size_t kLongest = 4096;
    Stage stage(kLongest);
    // Many long ones, and many of any length.
    const auto length = [&]() -> std::size_t {
      return random() % 2 == 0 ? kLongest : 1 + random() % kLongest;
    };
    std::size_t last_length = length();
    std::size_t last = stage.next(last_length);
    for (int i = 0; i < 10'000; ++i) {
      const std::size_t now_length = length();
      const std::size_t now = stage.next(now_length);
      ASSERT_LE(now + now_length, stage.bytes());
      ASSERT_TRUE(now >= last + last_length || now + now_length <= last)
          << "[" << last << ", " << last + last_length << ") and [" << now << ", "
          << now + now_length << ")";
      last = now;
      last_length = now_length;
    }
  }
}

}  // namespace
}  // namespace lockstep::transport
