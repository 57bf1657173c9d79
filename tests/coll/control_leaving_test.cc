// Ranks that leave a group, or the generation.
#include <gmock/gmock.h>

#include "coll/group_spec.h"
#include "tests/coll/controls.h"

namespace lockstep::coll {
namespace {

using simulated::host;
using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(Controls, AGoodbyeIsNotADeath) {
  start(4);
  run(500ms);
  rank(2).control->goodbye(8);
  run(10ms);
  for (int r = 0; r < 4; ++r) EXPECT_EQ(rank(r).control->left(2), 8U) << "rank " << r;
  kill(2);
  run(5s);
  for (const int r : {0, 1, 3}) EXPECT_FALSE(rank(r).failure.raised());
  EXPECT_TRUE(rank(1).control->missing(2, kWorld, barrier(7), DataPath::open).ok());
  EXPECT_FALSE(rank(1).control->missing(2, kWorld, barrier(7), DataPath::over).ok());
  EXPECT_TRUE(rank(1).control->missing(3, kWorld, barrier(7), DataPath::over).ok())
      << "dead, not gone";
  const Status missing = rank(1).control->missing(2, kWorld, barrier(8), DataPath::open);
  EXPECT_EQ(missing.kind(), ErrorKind::peer_lost);
  EXPECT_THAT(missing.culprits(), ElementsAre(2));
  EXPECT_THAT(missing.message(), HasSubstr("rank 2 has left the group after operation 7"));
  EXPECT_FALSE(rank(1).control->left(3).has_value());
}

TEST_F(Controls, EveryoneLearnsWhoHasLeftWhichGroup) {
  constexpr std::uint64_t kGroup = 77;
  constexpr std::uint64_t kUnused = 78;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    start(6, {.delay = 1ms, .jitter = 2ms}, seed);
    run(500ms);
    rank(4).control->leave_group(kGroup, 5);
    rank(4).control->leave_group(kWorld, 9);
    run(20ms);
    for (const int r : {0, 1, 2, 3, 5}) {
      const auto missing = [&](std::uint64_t group, std::uint64_t sequence) {
        return rank(r).control->missing(4, group, barrier(sequence), DataPath::open);
      };
      EXPECT_TRUE(missing(kGroup, 4).ok()) << r;
      EXPECT_THAT(missing(kGroup, 5).culprits(), ElementsAre(4)) << r;
      EXPECT_THAT(missing(kGroup, 5).message(), HasSubstr("has left the group after operation 4"));
      EXPECT_TRUE(missing(kWorld, 8).ok()) << r;
      EXPECT_FALSE(missing(kWorld, 9).ok()) << r;
      EXPECT_TRUE(missing(kUnused, 1).ok()) << r << ": it may still come";
      EXPECT_FALSE(rank(r).control->left(4).has_value()) << r;
    }
    // With the goodbye it will not.
    rank(4).control->leave_group(kGroup + 2, 3);
    rank(4).control->goodbye(9);
    run(20ms);
    EXPECT_FALSE(rank(1).control->missing(4, kUnused, barrier(1), DataPath::open).ok());
    EXPECT_TRUE(rank(1).control->missing(4, kGroup + 2, barrier(2), DataPath::open).ok());
    expect_no_failure();
  }
}

// A rank whose program keeps the session, or whose process is stopped after it has left.
TEST_F(Controls, ARankThatHasLeftMayFallSilent) {
  for (int leaver = 0; leaver < 4; ++leaver) {
    start(4);
    run(500ms);
    rank(leaver).control->goodbye(8);
    run(20ms);
    pause(leaver, 1h);
    run(10s);
    expect_no_failure();
  }
  EXPECT_TRUE(warnings_.empty()) << warnings_.front();
}

// Its last bytes may have got lost: whoever still waits for them must not do so for ever.
TEST_F(Controls, WhoWaitsForARankThatHasLeftAndIsSilentLearnsIt) {
  start(3);
  run(500ms);
  rank(2).control->goodbye(9);
  run(20ms);
  network_->silence_all(host(2));
  const auto missing = [&](int r) {
    return rank(r).control->missing(2, kWorld, barrier(7), DataPath::open);
  };
  run(2500ms);
  EXPECT_TRUE(missing(0).ok());
  run(1500ms);
  for (const int r : {0, 1}) {
    EXPECT_THAT(missing(r).culprits(), ElementsAre(2));
    EXPECT_THAT(missing(r).message(), HasSubstr("cannot be heard any more"));
    EXPECT_FALSE(rank(r).failure.raised()) << "nobody else needs it";
  }
}

TEST_F(Controls, SilentRanksThatHaveLeftDoNotMakeARankThinkThatItIsCutOff) {
  start(5);
  run(500ms);
  for (const int leaver : {0, 1}) rank(leaver).control->goodbye(8);
  run(20ms);
  for (const int leaver : {0, 1}) pause(leaver, 1h);
  run(2s);
  network_->silence_all(host(3));
  run(4s);
  EXPECT_THAT(verdict({0, 1, 3}).culprits(), ElementsAre(3));
}

TEST_F(Controls, RanksThatLeaveAfterDifferentCallsDisagree) {
  start(3);
  run(500ms);
  for (int r = 0; r < 3; ++r) rank(r).control->goodbye(r == 1 ? 5 : 6);
  run(50ms);
  const Status why = verdict({});
  EXPECT_EQ(why.kind(), ErrorKind::mismatch);
  EXPECT_THAT(why.culprits(), testing::Contains(1));
  EXPECT_THAT(why.message(), HasSubstr("rank 1"));
}

TEST_F(Controls, AllMayLeave) {
  start(5);
  run(500ms);
  for (int r = 0; r < 5; ++r) {
    rank(r).control->goodbye(1);
    run(20ms);
  }
  run(20ms);
  for (int r = 0; r < 5; ++r) EXPECT_TRUE(rank(r).control->may_leave()) << r;
  for (int r = 0; r < 5; ++r) kill(r);
  expect_no_failure();
}

// Rank 0 gives its verdict and is gone as soon as it may: nobody takes that for the cause.
TEST_F(Controls, WhoLeavesAfterTheVerdictIsNotBlamed) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    start(5, {.delay = 5ms, .jitter = 5ms}, seed);
    run(500ms);
    for (const int r : {1, 2, 3}) {
      rank(r).failure.report({ErrorKind::cancelled, Code::cancelled, "enough", {3}});
    }
    for (int i = 0; i < 200; ++i) {
      run(1ms);
      for (int r = 0; r < 5; ++r) {
        if (!rank(r).running || !rank(r).control->may_leave()) continue;
        EXPECT_TRUE(rank(r).failure.raised());
        rank(r).running = false;
        mesh_[static_cast<std::size_t>(r)].clear();
      }
    }
    EXPECT_EQ(verdict({}).message(), "enough");
    for (int r = 0; r < 5; ++r) EXPECT_FALSE(rank(r).running) << "rank " << r << " may not leave";
  }
}

// Rank 0 waits for further pulses to tell who of two is wrong, and those who have left send none.
TEST_F(Controls, ADisagreementFoundJustBeforeAllLeaveIsTold) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    start(4, {.delay = 1ms, .jitter = 2ms}, seed);
    run(500ms);
    for (int r = 0; r < 4; ++r) {
      auto first = barrier(1);
      if (r == 2) first.kind = 0;
      rank(r).history.add(first);
    }
    for (int i = 0; i < 200 && !rank(0).failure.proposed() && !rank(2).failure.proposed(); ++i) {
      run(1ms);
    }
    for (int r = 0; r < 4; ++r) {
      EXPECT_FALSE(rank(r).failure.raised()) << "too late";
      rank(r).control->goodbye(2);
    }
    for (int i = 0; i < 300; ++i) {
      run(1ms);
      for (int r = 0; r < 4; ++r) {
        if (!rank(r).running || !rank(r).control->may_leave()) continue;
        rank(r).running = false;
        mesh_[static_cast<std::size_t>(r)].clear();
      }
    }
    EXPECT_EQ(verdict({}).kind(), ErrorKind::mismatch) << "seed " << seed;
  }
}

TEST_F(Controls, WithoutRankZeroTheRestStillAgrees) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    start(6, {.delay = 1ms, .jitter = 1ms}, seed);
    run(500ms);
    rank(0).control->goodbye(9);
    run(10ms);
    kill(0);
    run(50ms);
    for (int r = 5; r >= 1; --r) {
      rank(r).failure.report({ErrorKind::cancelled, Code::cancelled, host(r), {r}});
    }
    run(100ms);
    EXPECT_THAT(verdict({0}).culprits(), ElementsAre(1));
  }
}

}  // namespace
}  // namespace lockstep::coll
