// Ranks that leave in good order, and what becomes of the control connections among those that stay.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "coll/group_spec.h"
#include "tests/coll/controls.h"

namespace lockstep::coll {
namespace {

using simulated::host;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::AnyOf;
using testing::ElementsAre;

class Successors : public Controls {
 protected:
  /// They leave in good order, and their processes end after that time.
  void leave(const std::set<int>& ranks, Duration linger) {
    for (const int r : ranks) rank(r).control->goodbye(9);
    run(linger);
    for (const int r : ranks) kill(r);
    gone_.insert(ranks.begin(), ranks.end());
  }
  void die(const std::set<int>& ranks) {
    for (const int r : ranks) kill(r);
    gone_.insert(ranks.begin(), ranks.end());
    run(200ms);
  }
  Status said() { return verdict(gone_); }

  std::set<int> gone_;
};

TEST_F(Successors, A6AllAreNamedAfterRankZeroHasLeft) {
  for (const Duration linger : {Duration(800ms), Duration(5ms)}) {
    for (int one = 1; one < 7; ++one) {
      for (int other = one + 1; other < 7; ++other) {
        gone_.clear();
        start(7, {.delay = 1ms, .jitter = 1ms}, static_cast<std::uint64_t>(one * 7 + other));
        run(500ms);
        leave({0}, linger);
        run(1s);
        expect_no_failure();
        die({one, other});
        if (one == 1) {
          EXPECT_THAT(said().culprits(), testing::IsSubsetOf({one, other}));
        } else {
          EXPECT_THAT(said().culprits(), ElementsAre(one, other));
        }
      }
    }
  }
}

// Rank 0's process lives on for a moment, and passes on what the others say.
TEST_F(Successors, A6DeathsSoonAfterRankZeroHasLeftHaveOneVerdict) {
  for (const Duration after : {Duration(2ms), Duration(100ms), Duration(499ms), Duration(505ms)}) {
    for (int one = 1; one < 6; ++one) {
      for (int other = one + 1; other < 6; ++other) {
        gone_.clear();
        start(6, {.delay = 1ms, .jitter = 1ms}, static_cast<std::uint64_t>(one * 7 + other));
        run(500ms);
        rank(0).control->goodbye(9);
        run(after);
        die({one, other});
        EXPECT_THAT(said().culprits(), testing::IsSubsetOf({one, other}))
            << one << " " << other << ": " << said().message();
        EXPECT_FALSE(said().culprits().empty());
      }
    }
  }
}

// Rank 1 takes rank 0 for dead and decides after it; rank 0, which leaves, takes rank 1 for dead. Either is
// right, but only one of them may decide.
TEST_F(Successors, ARankThatHasLeftLetsThoseThatStayDecide) {
  for (const Duration after : {Duration(0ms), Duration(1ms), Duration(2ms), Duration(5ms)}) {
    start(5, {.delay = 1ms});
    run(500ms);
    network_->half_close({.from = host(0), .to = host(1)});
    run(after);
    rank(0).control->goodbye(9);
    run(3s);
    EXPECT_THAT(verdict({0}).culprits(), AnyOf(ElementsAre(0), ElementsAre(1))) << after.count();
  }
}

TEST_F(Successors, A6AnyRanksMayHaveLeftBefore) {
  for (const std::set<int>& leavers :
       {std::set<int>{0, 1}, {0, 3}, {3, 5}, {1, 7}, {0, 2, 4, 6}, {0, 1, 2, 3}}) {
    for (int one = 0; one < 8; ++one) {
      for (int other = one + 1; other < 8; ++other) {
        if (leavers.count(one) + leavers.count(other) > 0) continue;
        gone_.clear();
        start(8, {.delay = 1ms, .jitter = 1ms}, static_cast<std::uint64_t>(one * 8 + other));
        run(500ms);
        leave(leavers, 50ms);
        run(1s);
        die({one, other});
        EXPECT_THAT(said().culprits(), testing::IsSubsetOf({one, other}));
        EXPECT_FALSE(said().culprits().empty());
      }
    }
  }
}

TEST_F(Successors, RanksThatLeaveOneAfterAnotherLeaveTheOthersConnected) {
  for (const Duration pause : {Duration(10ms), Duration(300ms), Duration(700ms)}) {
    gone_.clear();
    start(9);
    run(500ms);
    for (const int leaver : {0, 4, 1, 5, 2}) {
      leave({leaver}, 5ms);
      run(pause);
    }
    run(1s);
    expect_no_failure();
    rank(8).control->leave_group(77, 5);
    run(50ms);
    for (const int r : {3, 6, 7}) EXPECT_TRUE(rank(r).control->has_left(8, 77)) << r;
    const Time silent_since = world_->now();
    network_->silence_all(host(7));
    run(3300ms);
    gone_.insert(7);
    EXPECT_THAT(said().culprits(), ElementsAre(7));
    EXPECT_LE(longest_since(silent_since, gone_), 3s + kTprop + 1ms);
  }
}

// Processes that end without the moment that others need to hear of it.
TEST_F(Successors, NobodyIsBlamedForNotBeingThereToBeCalled) {
  start(6);
  run(500ms);
  leave({0, 3}, 2ms);
  leave({1}, 2ms);
  run(10s);
  expect_no_failure();
  kill(4);
  gone_.insert(4);
  run(200ms);
  EXPECT_THAT(said().culprits(), ElementsAre(4));
}

TEST_F(Successors, ARankThatDoesNotAnswerAfterOthersHaveLeftIsGivenUp) {
  start(4);
  run(500ms);
  leave({0, 2}, 50ms);  // the others have no connection yet
  network_->silence_all(host(3));
  run(3s);
  expect_no_failure();
  run(1s);
  EXPECT_THAT(rank(1).failure.cause().culprits(), ElementsAre(3));
  EXPECT_THAT(rank(3).failure.cause().culprits(), ElementsAre(1));
  EXPECT_THAT(rank(1).failure.cause().message(), testing::HasSubstr("no answer for 3.0 s"));
}

TEST_F(Successors, TheSuccessorSaysWhoKeepsTheOthersWaiting) {
  start(6);
  std::vector<Standings::Counter> counters;
  for (int r = 0; r < 6; ++r) counters.push_back(rank(r).control->enter_group(77));
  run(500ms);
  counters[0].reset();
  leave({0}, 800ms);
  run(500ms);
  for (const std::size_t r : {1U, 2U, 4U, 5U}) counters[r]->set(5, 0);
  counters[3]->set(4, 0);
  run(500ms);
  for (const int r : {1, 2, 4, 5}) EXPECT_THAT(rank(r).control->late(77, 5), ElementsAre(3)) << r;
}

// Two verdicts would be given otherwise: its own, and its successor's.
TEST_F(Successors, ARankZeroThatLeavesWhileItDecidesLeavesItToItsSuccessor) {
  for (Duration between{}; between < 12ms; between += 1ms) {
    gone_.clear();
    start(6);
    run(500ms);
    kill(3);
    run(between);
    rank(0).control->goodbye(9);
    run(200ms);
    gone_ = {0, 3};
    EXPECT_THAT(said().culprits(), ElementsAre(3));
  }
}

}  // namespace
}  // namespace lockstep::coll
