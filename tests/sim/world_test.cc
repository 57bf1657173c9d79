#include "sim/world.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::sim {
namespace {

using namespace std::chrono_literals;

TEST(Random, GivesTheSameNumbersEverywhere) {
  // Written down from one run: a change of these is a change of every recorded seed.
  Random random(42);
  EXPECT_EQ(random.next(), 1546998764402558742U);
  EXPECT_EQ(random.next(), 6990951692964543102U);
}

TEST(Random, BelowStaysInRangeAndReachesAll) {
  Random random(1);
  std::vector<int> seen(7);
  for (int i = 0; i < 7000; ++i) ++seen[random.below(7)];
  for (const int count : seen) {
    EXPECT_GT(count, 850);
    EXPECT_LT(count, 1150);
  }
}

TEST(Random, ChanceFollowsTheProbability) {
  Random random(2);
  int hits = 0;
  for (int i = 0; i < 10'000; ++i) hits += random.chance(0.25) ? 1 : 0;
  EXPECT_NEAR(hits, 2500, 200);
  EXPECT_FALSE(random.chance(0.0));
  EXPECT_TRUE(random.chance(1.0));
}

TEST(Random, UpToIncludesBothEnds) {
  Random random(3);
  bool low = false;
  bool high = false;
  for (int i = 0; i < 200; ++i) {
    const Duration drawn = random.up_to(3ns);
    ASSERT_GE(drawn, 0ns);
    ASSERT_LE(drawn, 3ns);
    low |= drawn == 0ns;
    high |= drawn == 3ns;
  }
  EXPECT_TRUE(low && high);
}

TEST(World, RunsEventsInOrderOfTimeThenOfScheduling) {
  World world(1);
  std::string order;
  world.schedule_after(2ms, [&] { order += 'c'; });
  world.schedule_after(1ms, [&] { order += 'a'; });
  world.schedule_after(1ms, [&] { order += 'b'; });
  EXPECT_EQ(world.next(), Time() + 1ms);
  while (world.step()) {
  }
  EXPECT_EQ(order, "abc");
  EXPECT_EQ(world.now(), Time() + 2ms);
  EXPECT_TRUE(world.idle());
  EXPECT_EQ(world.next(), Time::max());
}

TEST(World, AnEventOfThePastRunsNow) {
  World world(1);
  world.run_for(1s);
  bool ran = false;
  world.schedule(Time(), [&] { ran = true; });
  EXPECT_TRUE(world.step());
  EXPECT_TRUE(ran);
  EXPECT_EQ(world.now(), Time() + 1s);
}

TEST(World, EventsMayScheduleEvents) {
  World world(1);
  int ticks = 0;
  std::function<void()> tick = [&] {
    if (++ticks < 100) world.schedule_after(1us, tick);
  };
  world.schedule_after(1us, tick);
  EXPECT_TRUE(world.run_until([&] { return ticks == 50; }, Deadline::never()));
  EXPECT_EQ(world.now(), Time() + 50us);
  EXPECT_FALSE(world.run_until([] { return false; }, Deadline::never()));
  EXPECT_EQ(ticks, 100);
}

TEST(World, RunUntilStopsAtTheDeadline) {
  World world(1);
  bool ran = false;
  world.schedule_after(10ms, [&] { ran = true; });
  EXPECT_FALSE(world.run_until([&] { return ran; }, Deadline::after(world, 9ms)));
  EXPECT_EQ(world.now(), Time() + 9ms);
  EXPECT_FALSE(ran);
  EXPECT_TRUE(world.run_until([&] { return ran; }, Deadline::after(world, 1ms)));
}

TEST(World, SameSeedSameTrace) {
  const auto run = [](std::uint64_t seed) {
    World world(seed);
    int left = 200;
    std::function<void()> again = [&] {
      if (--left > 0) world.schedule_after(world.random().up_to(1ms), again);
    };
    world.schedule_after(0ns, again);
    while (world.step()) {
    }
    return world.trace_hash();
  };
  EXPECT_EQ(run(5), run(5));
  EXPECT_NE(run(5), run(6));
}

}  // namespace
}  // namespace lockstep::sim
