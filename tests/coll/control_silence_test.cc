// Ranks that are not heard for a while, or for too long.
#include <gmock/gmock.h>

#include "tests/coll/controls.h"

namespace lockstep::coll {
namespace {

using simulated::host;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(Controls, HealthyRanksStayQuiet) {
  start(6);
  run(10s);
  expect_no_failure();
  EXPECT_TRUE(warnings_.empty()) << warnings_.front();
}

TEST_F(Controls, SlowAndChoppyLinksAreHealthy) {
  start(4, {.delay = 200ms, .jitter = 100ms, .piece = 3});
  run(10s);
  expect_no_failure();
  EXPECT_TRUE(warnings_.empty()) << warnings_.front();
}

TEST_F(Controls, ShortSilenceIsAWarningThatNamesTheRank) {
  start(3);
  run(1s);
  network_->silence_all(host(2));
  run(1500ms);
  network_->heal_all(host(2));
  run(5s);
  expect_no_failure();
  ASSERT_FALSE(warnings_.empty());
  // Ranks 0 and 1 about 2, and 2 about both: once each.
  EXPECT_EQ(warnings_.size(), 4U);
  EXPECT_THAT(warnings_, testing::Contains(HasSubstr("rank 0: rank 2")));
  EXPECT_THAT(warnings_.front(), HasSubstr("silent for 1.0 s"));
}

TEST_F(Controls, SilenceIsNoticedAfterThreeSeconds) {
  start(6);
  run(1s);
  const Time silent_since = world_->now();
  network_->silence_all(host(4));
  run(2850ms);
  expect_no_failure();
  run(400ms);
  const Status why = verdict({4});
  EXPECT_EQ(why.kind(), ErrorKind::peer_lost);
  EXPECT_THAT(why.culprits(), ElementsAre(4));
  EXPECT_THAT(why.message(), HasSubstr("rank 4"));
  EXPECT_THAT(why.message(), HasSubstr("is silent: no pulse for 3.0 s"));
  EXPECT_LE(longest_since(silent_since, {4}), 3s + kTprop + 1ms);
}

TEST_F(Controls, ASilencedRankBlamesNobodyAloud) {
  for (int silenced = 0; silenced < 4; ++silenced) {
    start(4);
    run(1s);
    network_->silence_all(host(silenced));
    run(3200ms);
    EXPECT_THAT(rank(silenced).failure.cause().message(), HasSubstr("is cut off"));
    EXPECT_THAT(errors_, testing::IsEmpty()) << "the exception says it, and nobody else";
    network_->heal_all(host(silenced));
    run(1s);
    EXPECT_THAT(verdict({silenced}).culprits(), ElementsAre(silenced));
  }
}

// Whenever the silence ends, the others agree on who was silent.
TEST_F(Controls, SilenceThatHealsAtTheThreshold) {
  for (int tenth = 0; tenth < 40; ++tenth) {
    for (const int silenced : {0, 2}) {
      start(4, {.delay = 1ms, .jitter = 5ms}, static_cast<std::uint64_t>(tenth) + 1);
      run(1s);
      network_->silence_all(host(silenced));
      run(2800ms + tenth * 10ms);
      network_->heal_all(host(silenced));
      run(4s);
      if (!rank(1).failure.raised()) continue;
      EXPECT_THAT(verdict({silenced}).culprits(), ElementsAre(silenced)) << tenth;
    }
  }
}

TEST_F(Controls, APauseShorterThanDeathIsForgiven) {
  start(5);
  run(1s);
  pause(3, 2500ms);
  run(6s);
  expect_no_failure();
}

TEST_F(Controls, ALongPauseIsDeathAndTheSleeperLearnsIt) {
  for (const int sleeper : {0, 3}) {
    start(5);
    run(1s);
    pause(sleeper, 5s);
    run(6s);
    EXPECT_THAT(verdict({}).culprits(), ElementsAre(sleeper)) << "the sleeper included";
  }
}

// Whoever hears none of its peers for a moment is not cut off: two of them may be back at once.
TEST_F(Controls, ShortPausesOfTheOtherPeersDoNotCutARankOff) {
  start(4);
  run(1s);
  network_->silence_all(host(3));
  run(1700ms);
  for (const int paused : {0, 1}) pause(paused, 1500ms);
  run(3s);
  EXPECT_THAT(verdict({3}).culprits(), ElementsAre(3));
}

// A10: the ranks of a frozen host are named together.
TEST_F(Controls, RanksThatFallSilentTogetherAreNamedTogether) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    start(6, {.delay = 1ms, .jitter = 90ms}, seed);
    run(1s);
    for (const int silent : {2, 3, 5}) network_->silence_all(host(silent));
    run(3300ms);
    EXPECT_THAT(verdict({2, 3, 5}).culprits(), ElementsAre(2, 3, 5));
  }
}

// A rank that proposes an end has been heard: who hears only such ranks is not cut off.
TEST_F(Controls, TwoLongPausesAtOnceOneVerdict) {
  for (int one = 0; one < 5; ++one) {
    for (int other = one + 1; other < 5; ++other) {
      for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        start(5, {.delay = 1ms, .jitter = 20ms}, seed);
        run(1s);
        pause(one, 9s);
        pause(other, 9s);
        run(5s);
        std::set<int> not_asked = {one, other};
        for (int r = 0; r < 5; ++r) {
          const auto peers = control_peers(r, 5);
          const bool hears_nobody = std::all_of(
              peers.begin(), peers.end(), [&](int peer) { return peer == one || peer == other; });
          if (hears_nobody) not_asked.insert(r);
        }
        const Status why = verdict(not_asked);
        EXPECT_THAT(why.culprits(), testing::IsSubsetOf({one, other}))
            << one << " " << other << " " << why.message();
        EXPECT_FALSE(why.culprits().empty());
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::coll
