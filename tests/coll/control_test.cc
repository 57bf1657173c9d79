#include "coll/control.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "coll/group_spec.h"
#include "lockstep/log.h"
#include "tests/sim_cluster/mesh.h"

namespace lockstep::coll {
namespace {

using simulated::borrow;
using simulated::host;
using simulated::make_mesh;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;
using transport::Failure;
using transport::History;

constexpr auto kTprop = 100ms;

wire::Descriptor barrier(std::uint64_t sequence) {
  wire::Descriptor d;
  d.sequence = sequence;
  d.kind = 8;
  return d;
}

wire::Descriptor broadcast(std::uint64_t sequence, int root) {
  wire::Descriptor d = barrier(sequence);
  d.kind = 2;
  d.root = root;
  return d;
}

class Controls : public testing::Test {
 protected:
  struct Rank {
    Failure failure;
    History history;
    std::unique_ptr<Control> control;
    Time paused_until{};
    bool running = true;
    std::optional<Time> failed_at;
  };

  ~Controls() override { set_log_sink({}); }

  void start(int size, sim::LinkOptions links = {.delay = std::chrono::milliseconds(1)},
             std::uint64_t seed = 1) {
    ranks_.clear();
    mesh_.clear();
    network_.reset();
    world_ = std::make_unique<sim::World>(seed);
    network_ = std::make_unique<sim::Network>(*world_, links);
    mesh_ = make_mesh(*world_, *network_, size, 4000, [&](int low, int high) {
      const auto peers = control_peers(low, size);
      return std::find(peers.begin(), peers.end(), high) != peers.end();
    });
    set_log_sink([this](LogLevel level, std::string_view text) {
      if (level == LogLevel::warning) warnings_.emplace_back(text);
    });
    for (int rank = 0; rank < size; ++rank) {
      auto& r = ranks_.emplace_back(std::make_unique<Rank>());
      r->control = std::make_unique<Control>(
          Control::Setup{.rank = rank,
                         .size = size,
                         .generation = 1,
                         .failure = &r->failure,
                         .history = &r->history,
                         .peers = borrow(mesh_[static_cast<std::size_t>(rank)]),
                         .timing = {}});
    }
  }
  Rank& rank(int number) { return *ranks_[static_cast<std::size_t>(number)]; }
  int size() const { return static_cast<int>(ranks_.size()); }

  /// Polls every rank once a millisecond of virtual time, as a thread would when woken.
  void run(Duration span) {
    const Time end = world_->now() + span;
    while (world_->now() < end) {
      for (auto& r : ranks_) {
        if (!r->running || world_->now() < r->paused_until) continue;
        r->control->poll(world_->now());
        if (!r->failed_at && r->failure.raised()) r->failed_at = world_->now();
      }
      world_->run_for(1ms);
    }
  }
  void kill(int number) {
    rank(number).running = false;
    network_->kill(host(number));
  }
  void pause(int number, Duration span) { rank(number).paused_until = world_->now() + span; }

  /// All ranks but `dead` have failed with the same kind and culprits; which.
  Status verdict(const std::set<int>& dead) {
    std::optional<Status> common;
    for (int r = 0; r < size(); ++r) {
      if (dead.count(r) != 0) continue;
      const Status cause = rank(r).failure.cause();
      EXPECT_FALSE(cause.ok()) << "rank " << r << " knows of nothing";
      if (!common) common = cause;
      EXPECT_EQ(cause.kind(), common->kind()) << "rank " << r;
      EXPECT_EQ(cause.culprits(), common->culprits()) << "rank " << r << ": " << cause.message();
      // Two deaths may cut the ring in halves, which then tell the same in their own words.
      if (dead.size() < 2) {
        EXPECT_EQ(cause.message(), common->message()) << "rank " << r;
      }
    }
    return *common;
  }
  Duration longest_since(Time start, const std::set<int>& dead) {
    Duration longest{};
    for (int r = 0; r < size(); ++r) {
      if (dead.count(r) != 0 || !rank(r).failed_at) continue;
      longest = std::max(longest, *rank(r).failed_at - start);
    }
    return longest;
  }
  void expect_no_failure() {
    for (int r = 0; r < size(); ++r) {
      EXPECT_FALSE(rank(r).failure.raised()) << rank(r).failure.cause().message();
    }
  }

  std::unique_ptr<sim::World> world_;
  std::unique_ptr<sim::Network> network_;
  simulated::Mesh mesh_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::string> warnings_;
};

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

TEST_F(Controls, DeathIsNoticedAtOnceAndSpreads) {
  for (int victim = 0; victim < 6; ++victim) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      start(6, {.delay = 1ms, .jitter = 2ms}, seed);
      run(350ms);
      const Time died = world_->now();
      kill(victim);
      run(200ms);
      const Status why = verdict({victim});
      EXPECT_EQ(why.kind(), ErrorKind::peer_lost);
      EXPECT_THAT(why.culprits(), ElementsAre(victim));
      EXPECT_THAT(why.message(), HasSubstr("died: its control connection"));
      EXPECT_LE(longest_since(died, {victim}), kTprop) << "victim " << victim;
    }
  }
}

// A6: rank 0 waits a moment for the second.
TEST_F(Controls, TwoDeathsAtOnceAreBothNamed) {
  for (int one = 0; one < 6; ++one) {
    for (int other = one + 1; other < 6; ++other) {
      for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        start(6, {.delay = 1ms, .jitter = 3ms}, seed);
        run(350ms);
        kill(seed % 2 == 0 ? one : other);
        if (seed > 2) run(2ms);
        kill(one);
        kill(other);
        run(200ms);
        const Status why = verdict({one, other});
        // One that dies after it has told of the other has said why it ends.
        if (one > 0 && seed <= 2) {
          EXPECT_THAT(why.culprits(), ElementsAre(one, other));
          EXPECT_THAT(why.message(), HasSubstr(fmt::format("rank {} (", one)));
          EXPECT_THAT(why.message(), HasSubstr(fmt::format("rank {} (", other)));
        } else {
          EXPECT_THAT(why.culprits(), testing::IsSubsetOf({one, other}));
          EXPECT_FALSE(why.culprits().empty());
        }
      }
    }
  }
}

TEST_F(Controls, OfTwoThatHaveLostEachOtherTheOneThatDecidesIsRight) {
  start(6);
  run(350ms);
  network_->cut(host(0), host(3));
  run(200ms);
  EXPECT_THAT(verdict({}).culprits(), ElementsAre(3)) << "rank 0 is well: it has decided";
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

TEST_F(Controls, AnAbortReachesAllWithItsText) {
  for (int origin = 0; origin < 6; ++origin) {
    start(6, {.delay = 1ms, .jitter = 1ms, .piece = 5});
    run(1s);
    const Time at = world_->now();
    rank(origin).failure.report({ErrorKind::cancelled, Code::cancelled, "user said so", {origin}});
    EXPECT_FALSE(rank(origin).failure.raised()) << "not before all agree";
    run(500ms);
    const Status why = verdict({});
    EXPECT_EQ(why.kind(), ErrorKind::cancelled);
    EXPECT_EQ(why.message(), "user said so");
    EXPECT_THAT(why.culprits(), ElementsAre(origin));
    EXPECT_LE(longest_since(at, {}), 500ms);
  }
}

TEST_F(Controls, CausesReportedAtOnceBecomeOne) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    start(6, {.delay = 1ms, .jitter = 5ms}, seed);
    run(500ms);
    for (int r = 0; r < 6; ++r) {
      rank(r).failure.report({ErrorKind::cancelled, Code::cancelled, host(r), {r}});
    }
    run(100ms);
    EXPECT_EQ(verdict({}).culprits().size(), 1U);
  }
}

// A rank that aborts and exits is blamed for what it said, not for having died.
TEST_F(Controls, AnAbortIsHeardBeforeTheEnd) {
  for (int origin = 0; origin < 4; ++origin) {
    start(4);
    run(500ms);
    rank(origin).failure.report({ErrorKind::cancelled, Code::cancelled, "gave up", {origin}});
    rank(origin).control->poll(world_->now());
    rank(origin).running = false;
    for (auto& connection : mesh_[static_cast<std::size_t>(origin)]) {
      if (connection) connection->shutdown_write();
    }
    run(300ms);
    EXPECT_EQ(verdict({origin}).message(), "gave up") << origin;
  }
}

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

// A27: whoever waits knows for whom, also for ranks it has no control connection with.
TEST_F(Controls, EveryoneLearnsWhoKeepsTheOthersWaiting) {
  start(7);
  run(1s);
  for (int r = 0; r < 7; ++r) {
    for (std::uint64_t i = 1; i <= (r == 3 ? 4 : 5); ++i) rank(r).history.add(barrier(i));
  }
  run(500ms);
  for (const int r : {0, 1, 2, 4, 5, 6}) {
    EXPECT_THAT(rank(r).control->late(5), ElementsAre(3)) << r;
    EXPECT_THAT(rank(r).control->late(6), ElementsAre()) << r << ": nothing is known of it yet";
  }
  EXPECT_THAT(rank(3).control->late(4), ElementsAre());
  rank(3).history.add(barrier(5));  // it has come after all
  run(300ms);
  for (const int r : {0, 1, 5}) EXPECT_THAT(rank(r).control->late(5), ElementsAre()) << r;
  // What was told of an earlier wait says nothing about a later one.
  for (int r = 0; r < 7; ++r) {
    for (std::uint64_t i = 6; i <= (r == 0 ? 8 : 9); ++i) rank(r).history.add(barrier(i));
  }
  EXPECT_THAT(rank(5).control->late(9), ElementsAre());
  run(500ms);
  EXPECT_THAT(rank(5).control->late(9), ElementsAre(0));
  expect_no_failure();
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

TEST_F(Controls, PulsesFindRanksWhoseCallsDiffer) {
  start(4);
  for (std::uint64_t i = 1; i <= 3; ++i) {
    for (int r = 0; r < 4; ++r) rank(r).history.add(broadcast(i, r == 3 && i == 3 ? 3 : 0));
  }
  run(300ms);
  const Status why = verdict({});
  EXPECT_EQ(why.kind(), ErrorKind::mismatch);
  EXPECT_THAT(why.culprits(), testing::Contains(3));
  EXPECT_THAT(why.message(), HasSubstr("operation 3"));
  EXPECT_THAT(why.message(), HasSubstr("rank 3: broadcast root 3"));
}

TEST_F(Controls, PulsesFindACallThatDifferedLongAgo) {
  start(2);
  for (std::uint64_t i = 1; i <= 90; ++i) {
    for (int r = 0; r < 2; ++r) rank(r).history.add(broadcast(i, r == 1 && i == 3 ? 1 : 0));
  }
  run(300ms);
  EXPECT_THAT(verdict({}).message(), HasSubstr("before operation 90"));
}

TEST_F(Controls, RanksAtDifferentOperationsAgree) {
  start(3);
  for (int round = 0; round < 30; ++round) {
    for (int r = 0; r < 3; ++r) {
      const std::uint64_t done = rank(r).history.latest().descriptor.sequence;
      const std::uint64_t target =
          static_cast<std::uint64_t>(round) * 10 + static_cast<std::uint64_t>(r) * 7;
      for (std::uint64_t i = done + 1; i <= target; ++i) rank(r).history.add(barrier(i));
    }
    run(60ms);
  }
  expect_no_failure();
}

TEST_F(Controls, GarbageIsTheEndOfWhoSentIt) {
  start(3);
  run(500ms);
  const std::vector<std::byte> garbage(64, std::byte{7});
  (void)mesh_[2][1]->write(garbage);
  run(100ms);
  const Status why = verdict({});
  EXPECT_THAT(why.culprits(), ElementsAre(2));
  EXPECT_THAT(why.message(), HasSubstr("unreadable frame"));
}

TEST_F(Controls, AGroupOfOneNeedsNobody) {
  start(1);
  run(1s);
  rank(0).failure.report({ErrorKind::cancelled, Code::cancelled, "enough"});
  run(2ms);
  EXPECT_TRUE(rank(0).failure.raised());
  rank(0).control->goodbye(1);
  EXPECT_TRUE(rank(0).control->may_leave());
}

// Polling only when next_poll() says so, or when something arrived, is enough.
TEST_F(Controls, NextPollIsSoonEnough) {
  start(3);
  std::vector<std::uint64_t> seen(3, 0);
  const Time end = world_->now() + 8s;
  bool silenced = false;
  int polls = 0;
  while (world_->now() < end) {
    Time next = end;
    for (int r = 0; r < 3; ++r) {
      const std::uint64_t activity = network_->at(host(r)).activity();
      Control& control = *rank(r).control;
      if (activity != seen[static_cast<std::size_t>(r)] || control.next_poll() <= world_->now()) {
        seen[static_cast<std::size_t>(r)] = activity;
        control.poll(world_->now());
        ++polls;
      }
      next = std::min(next, control.next_poll());
    }
    if (!silenced && world_->now() > Time{} + 2s) {
      network_->silence_all(host(1));
      silenced = true;
    }
    ASSERT_GT(next, world_->now()) << "a rank that always has something to do";
    if (world_->next() <= next) {
      world_->step();
    } else {
      world_->run_for(next - world_->now());
    }
  }
  EXPECT_THAT(verdict({1}).culprits(), ElementsAre(1));
  EXPECT_LT(polls, 2000);
}

}  // namespace
}  // namespace lockstep::coll
