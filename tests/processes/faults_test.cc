// Ranks that crash, pause, leave or disagree, in every phase and over every transport. The ids are
// those of the catalogue of failures.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <tuple>

#include "tests/processes/fault_checks.h"
#include "tests/processes/rejoins.h"
#include "tests/processes/scenarios.h"

namespace lockstep::processes {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// A transport, and what goes over it.
struct Ground {
  std::string name;
  Wire wire = Wire::local;
  std::string scenario;
  std::vector<std::string> hosts = {};
  int ranks = 3;
};

std::vector<Ground> grounds() {
  return {
      {.name = "Slots", .scenario = "work 20 64"},
      {.name = "MemoryOfTheSession", .scenario = "work 20 1000000 session"},
      {.name = "OwnBuffers", .scenario = "work 20 1000000"},
      {.name = "Tcp", .wire = Wire::tcp, .scenario = "work 20 300000"},
      {.name = "Tls", .wire = Wire::tls, .scenario = "work 20 300000"},
      {.name = "TwoByTwo",
       .wire = Wire::tls,
       .scenario = "work 20 100000",
       .hosts = {"a", "a", "b", "b"},
       .ranks = 4},
      {.name = "Idle", .scenario = "idle 20"},
      {.name = "IdleOverTcp", .wire = Wire::tcp, .scenario = "idle 20"},
  };
}

ClusterOptions on(const Ground& ground) {
  return {.ranks = ground.ranks,
          .scenario = ground.scenario,
          .wire = ground.wire,
          .hosts = ground.hosts,
          .environment = {"TEST_DEAD_MS=1000"}};
}

std::string name_of(const testing::TestParamInfo<Ground>& info) { return info.param.name; }

class Faults : public testing::TestWithParam<Ground> {
 protected:
  /// Sends the signal to all victims at once when everybody is at work.
  std::vector<Outcome> strike(const std::vector<int>& victims, sys::Signal signal) {
    ProcessCluster cluster(on(GetParam()));
    EXPECT_TRUE(cluster.wait_for_all("working", 10s)) << cluster.text(0);
    addresses_ = cluster.addresses();
    pids_.clear();
    for (int rank = 0; rank < cluster.size(); ++rank) pids_.push_back(cluster.process(rank).pid());
    at_us_ = now_us();
    for (const int victim : victims) (void)cluster.process(victim).signal(signal);
    for (int rank = 0; rank < cluster.size(); ++rank) {
      if (is_in(rank, victims)) continue;
      EXPECT_TRUE(cluster.wait_for(rank, "closed after", 6s)) << cluster.text(rank);
    }
    for (const int victim : victims) (void)cluster.process(victim).signal(sys::Signal::kill);
    return cluster.finish(5s);
  }
  /// Until all survivors have thrown.
  static std::chrono::milliseconds promised() {
    return GetParam().wire == Wire::local ? 50ms : 100ms;
  }

  std::int64_t at_us_ = 0;
  std::vector<int> pids_;
  std::vector<std::string> addresses_;
};

TEST_P(Faults, A1A3AKilledRank) {
  expect_promise(promised(), [&] {
    const auto outcomes = strike({1}, sys::Signal::kill);
    expect_verdicts(outcomes, {1}, {"PeerLost", {1}});
    // Which process it was, and where.
    const auto verdict = verdict_in(outcomes[0].text).value_or(Verdict());
    EXPECT_THAT(verdict.message, HasSubstr(fmt::format("rank 1 (pid {} on ", pids_[1])));
    EXPECT_THAT(verdict.message, HasSubstr(") at " + addresses_[1]));
    return longest_us(outcomes, {1}, at_us_);
  });
}

TEST_P(Faults, A5RankZeroIsKilled) {
  expect_promise(promised(), [&] {
    const auto outcomes = strike({0}, sys::Signal::kill);
    expect_verdicts(outcomes, {0}, {"PeerLost", {0}});
    return longest_us(outcomes, {0}, at_us_);
  });
}

/// Each takes as long as a silent rank may be silent, so on fewer grounds.
class Silence : public Faults {};

TEST_P(Silence, A10AStoppedRank) {
  constexpr auto kDead = 1000ms;
  expect_promise(kDead + 200ms, [&] {
    const int last = GetParam().ranks - 1;
    const auto outcomes = strike({last}, sys::Signal::stop);
    expect_verdicts(outcomes, {last}, {"PeerLost", {last}});
    return longest_us(outcomes, {last}, at_us_);
  });
}

INSTANTIATE_TEST_SUITE_P(On, Faults, testing::ValuesIn(grounds()), name_of);
INSTANTIATE_TEST_SUITE_P(On, Silence,
                         testing::Values(grounds()[0], grounds()[1], grounds()[3], grounds()[5]),
                         name_of);

class FaultsOfMany : public Faults {};

/// Both are named, since rank 0 waits a moment for the second; in one run in a few, for a signal
/// may come late on a busy machine.
TEST_P(FaultsOfMany, A6TwoAreKilledAtOnce) {
  bool both = false;
  for (int i = 0; i < 6 && !both && !HasFailure(); ++i) {
    expect_promise(promised(), [&] {
      const auto outcomes = strike({1, 2}, sys::Signal::kill);
      std::vector<std::vector<int>> seen;
      for (const int rank : {0, 3}) {
        const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
        const auto verdict = verdict_in(outcome.text).value_or(Verdict());
        EXPECT_EQ(verdict.kind, "PeerLost") << outcome.how() << outcome.text;
        EXPECT_TRUE(outcome.exited_with(3));
        seen.push_back(verdict.culprits);
      }
      EXPECT_EQ(seen[0], seen[1]);
      EXPECT_THAT(seen[0], testing::IsSubsetOf({1, 2}));
      EXPECT_FALSE(seen[0].empty());
      both = both || seen[0].size() == 2;
      return longest_us(outcomes, {1, 2}, at_us_);
    });
  }
  EXPECT_TRUE(both) << "one of the two was never named";
}

TEST_P(FaultsOfMany, A6RankZeroAndAnotherAreKilledAtOnce) {
  const auto outcomes = strike({0, 3}, sys::Signal::kill);
  std::vector<std::vector<int>> seen;
  for (const int rank : {1, 2}) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    const auto verdict = verdict_in(outcome.text);
    ASSERT_TRUE(verdict.has_value()) << outcome.how() << outcome.text;
    EXPECT_EQ(verdict->kind, "PeerLost");
    seen.push_back(verdict->culprits);
  }
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_THAT(seen[0], testing::IsSubsetOf({0, 3}));
  EXPECT_FALSE(seen[0].empty());
}

TEST_P(FaultsOfMany, A6OneIsLeft) {
  const auto outcomes = strike({0, 1, 3}, sys::Signal::kill);
  const auto verdict = verdict_in(outcomes[2].text);
  ASSERT_TRUE(verdict.has_value()) << outcomes[2].how() << outcomes[2].text;
  EXPECT_EQ(verdict->kind, "PeerLost");
  EXPECT_FALSE(verdict->culprits.empty());
  EXPECT_THAT(verdict->culprits, testing::IsSubsetOf({0, 1, 3}));
}

INSTANTIATE_TEST_SUITE_P(
    On, FaultsOfMany,
    testing::Values(Ground{.name = "Slots", .scenario = "work 20 64", .ranks = 4},
                    Ground{
                        .name = "Tcp", .wire = Wire::tcp, .scenario = "work 20 10000", .ranks = 4},
                    Ground{.name = "TwoByTwo",
                           .wire = Wire::tls,
                           .scenario = "work 20 10000",
                           .hosts = {"a", "a", "b", "b"},
                           .ranks = 4}),
    name_of);

class Successors : public testing::TestWithParam<Ground> {};

/// Rank 0 has closed its session, and its process has ended. The others have one verdict all the
/// same, though the two that die were between them in the ring of ranks.
TEST_P(Successors, A6TwoAreKilledAtOnceAfterRankZeroHasLeft) {
  ProcessCluster cluster(on(GetParam()));
  for (int rank = 1; rank < cluster.size(); ++rank) {
    ASSERT_TRUE(cluster.wait_for(rank, "working", 20s)) << cluster.text(rank);
  }
  ASSERT_TRUE(cluster.process(0).wait(Deadline::after(5s)).has_value());
  for (const int victim : {2, 4}) {
    ASSERT_TRUE(cluster.process(victim).signal(sys::Signal::kill).ok());
  }
  const auto outcomes = cluster.finish(10s);
  EXPECT_TRUE(outcomes[0].ok()) << outcomes[0].text;
  std::vector<std::vector<int>> seen;
  for (const int rank : {1, 3, 5}) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    const auto verdict = verdict_in(outcome.text);
    ASSERT_TRUE(verdict.has_value()) << outcome.how() << outcome.text;
    EXPECT_EQ(verdict->kind, "PeerLost");
    seen.push_back(verdict->culprits);
  }
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[0], seen[2]);
  EXPECT_THAT(seen[0], testing::IsSubsetOf({2, 4}));
  EXPECT_FALSE(seen[0].empty());
}

INSTANTIATE_TEST_SUITE_P(
    On, Successors,
    testing::Values(
        Ground{.name = "Slots", .scenario = "leave 0 others", .ranks = 6},
        Ground{.name = "Tcp", .wire = Wire::tcp, .scenario = "leave 0 others", .ranks = 6},
        Ground{.name = "Tls", .wire = Wire::tls, .scenario = "leave 0 others", .ranks = 6}),
    name_of);

class Pause : public testing::TestWithParam<Ground> {};

/// A8: shorter than what counts as dead. Nobody fails, and `work` checks every number.
TEST_P(Pause, A8IsSurvived) {
  ClusterOptions options = on(GetParam());
  options.environment = {"TEST_DEAD_MS=2000"};
  ProcessCluster cluster(options);
  ASSERT_TRUE(cluster.wait_for_all("working", 10s)) << cluster.text(0);
  ASSERT_TRUE(cluster.process(1).signal(sys::Signal::stop).ok());
  // Long enough for a warning (a third of what counts as dead).
  EXPECT_TRUE(cluster.wait_for(0, "rank 1 (", 5s)) << cluster.text(0);
  ASSERT_TRUE(cluster.process(1).signal(sys::Signal::resume).ok());
  const auto outcomes = cluster.finish(10s);
  EXPECT_THAT(outcomes[0].text, HasSubstr("has been silent for"));
  for (const Outcome& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.text;
}

INSTANTIATE_TEST_SUITE_P(
    On, Pause,
    testing::Values(Ground{.name = "Slots", .scenario = "work 1.2 64"},
                    Ground{.name = "MemoryOfTheSession", .scenario = "work 1.2 1000000 session"},
                    Ground{.name = "Tcp", .wire = Wire::tcp, .scenario = "work 1.2 100000"},
                    Ground{.name = "TwoByTwo",
                           .wire = Wire::tcp,
                           .scenario = "work 1.2 100000",
                           .hosts = {"a", "a", "b", "b"},
                           .ranks = 4}),
    name_of);

/// D27: rank 1 logs that rank 2 is silent, and nobody reads it. It goes on sending pulses.
TEST(UnreadLog, D27DoesNotStopTheRank) {
  for (const std::string how : {"stderr", "sink"}) {
    ProcessCluster cluster(
        {.ranks = 3, .scenario = "unread 1 " + how, .environment = {"TEST_DEAD_MS=1500"}});
    ASSERT_TRUE(cluster.wait_for_all("working", 10s)) << cluster.text(0);
    ASSERT_TRUE(cluster.process(2).signal(sys::Signal::stop).ok());
    EXPECT_TRUE(cluster.wait_for(0, "has been silent for", 5s)) << cluster.text(0);
    ASSERT_TRUE(cluster.process(2).signal(sys::Signal::resume).ok());
    for (const Outcome& outcome : cluster.finish(10s)) {
      EXPECT_TRUE(outcome.ok()) << how << ": " << outcome.how() << outcome.text;
    }
  }
}

/// Faults that come from the program itself. The scenario's word is the odd rank's number.
class Programs : public testing::TestWithParam<Wire> {
 protected:
  static std::vector<Outcome> run(const std::string& scenario) {
    ProcessCluster cluster({.ranks = 3,
                            .scenario = scenario,
                            .wire = GetParam(),
                            .environment = {"TEST_DEAD_MS=1000"}});
    return cluster.finish(30s);  // against a hang: instrumented, some take ten
  }
};

TEST_P(Programs, AnAbortReachesAll) {
  for (const int rank : {0, 2}) {
    const auto outcomes = run(fmt::format("abort {}", rank));
    expect_verdicts(outcomes, {}, {"Cancelled", {rank}});
    for (const Outcome& outcome : outcomes) {
      EXPECT_THAT(outcome.text, HasSubstr("the user had enough"));
    }
  }
}

TEST_P(Programs, AnExceptionOfTheUsersEndsTheOthersToo) {
  for (const int rank : {0, 1}) {
    const auto outcomes = run(fmt::format("throw {}", rank));
    expect_verdicts(outcomes, {rank}, {"PeerLost", {rank}});
    EXPECT_TRUE(outcomes[static_cast<std::size_t>(rank)].exited_with(5));
    EXPECT_THAT(outcomes[static_cast<std::size_t>(rank)].text, HasSubstr("a bug of the user's"));
  }
}

TEST_P(Programs, AnExitInTheMiddleOfAnOperation) {
  for (const int rank : {0, 2}) {
    const auto outcomes = run(fmt::format("exit {}", rank));
    EXPECT_TRUE(outcomes[static_cast<std::size_t>(rank)].exited_with(7))
        << outcomes[static_cast<std::size_t>(rank)].how();
    for (const int other : {0, 1, 2}) {
      if (other == rank) continue;
      const Outcome& outcome = outcomes[static_cast<std::size_t>(other)];
      const auto verdict = verdict_in(outcome.text);
      ASSERT_TRUE(verdict.has_value()) << outcome.how() << outcome.text;
      EXPECT_EQ(verdict->culprits, std::vector<int>{rank}) << outcome.text;
      EXPECT_TRUE(outcome.exited_with(3));
    }
  }
}

void expect_half_closed_is_lost(const std::vector<Outcome>& outcomes, int rank, Wire wire) {
  if (wire != Wire::tls) return expect_verdicts(outcomes, {}, {"PeerLost", {rank}});
  // A stream that was cut off is not trusted in either direction: the rank itself is not told.
  expect_verdicts(outcomes, {rank}, {"PeerLost", {rank}});
  const auto own = verdict_in(outcomes[static_cast<std::size_t>(rank)].text);
  ASSERT_TRUE(own.has_value());
  EXPECT_EQ(own->kind, "PeerLost");
}

TEST_P(Programs, AHalfClosedRankIsLost) {
  for (const int rank : {0, 1}) {
    expect_half_closed_is_lost(run(fmt::format("mute {}", rank)), rank, GetParam());
  }
}

TEST_P(Programs, AHalfClosedRankIsLostThoughAllAreIdle) {
  for (const int rank : {0, 1}) {
    expect_half_closed_is_lost(run(fmt::format("mute {} idle", rank)), rank, GetParam());
  }
}

/// Nobody needs it any more.
TEST_P(Programs, AHalfClosedRankHurtsNobodyDuringTheShutdown) {
  for (const int rank : {0, 1}) {
    ProcessCluster cluster(
        {.ranks = 3, .scenario = fmt::format("mute {} late", rank), .wire = GetParam()});
    for (const int other : {0, 1, 2}) {
      if (other == rank) continue;
      EXPECT_TRUE(cluster.wait_for(other, "closed after", 10s)) << cluster.text(other);
      const auto ended = cluster.process(other).wait(Deadline::after(4s));
      ASSERT_TRUE(ended.has_value()) << cluster.text(other);
      EXPECT_TRUE(ended->success()) << cluster.text(other);
    }
    (void)cluster.process(rank).signal(sys::Signal::kill);
  }
}

/// One is stuck in its own code. Others wait for ranks that wait for it; all name it.
TEST_P(Programs, A27AStuckRankIsNamedByAll) {
  ProcessCluster cluster({.ranks = 4,
                          .scenario = "stuck 3",
                          .wire = GetParam(),
                          .environment = {"TEST_PROGRESS_MS=2000"}});
  const auto outcomes = cluster.finish(30s);
  expect_verdicts(outcomes, {}, {"Timeout", {3}});
  for (const int rank : {0, 1, 2}) {
    EXPECT_THAT(outcomes[static_cast<std::size_t>(rank)].text,
                testing::ContainsRegex(fmt::format("rank {} has waited .*for rank 3 [(]", rank)));
  }
}

/// The same in a subgroup, whichever rank it is and whoever waits for whom.
TEST_P(Programs, A27ARankStuckInASubgroupIsNamedByAll) {
  for (const auto& [stuck, size, algorithm] :
       {std::tuple(1, 3, "direct"), std::tuple(0, 4, "halving")}) {
    ProcessCluster cluster(
        {.ranks = size + 1,
         .scenario = fmt::format("stuck {} {}", stuck, size),
         .wire = GetParam(),
         .environment = {"TEST_PROGRESS_MS=2000",
                         fmt::format("TEST_ALGORITHMS=all_reduce={}", algorithm)}});
    const auto outcomes = cluster.finish(30s);
    expect_verdicts(outcomes, {}, {"Timeout", {stuck}});
    for (int rank = 0; rank < size; ++rank) {
      if (rank == stuck) continue;
      EXPECT_THAT(
          outcomes[static_cast<std::size_t>(rank)].text,
          testing::ContainsRegex(fmt::format("rank {} has waited .*for rank {} [(]", rank, stuck)));
    }
  }
}

TEST_P(Programs, B4ADifferentCountIsNamedEverywhere) {
  const auto outcomes = run("mismatch 2");
  for (const Outcome& outcome : outcomes) {
    const auto verdict = verdict_in(outcome.text);
    ASSERT_TRUE(verdict.has_value()) << outcome.how() << outcome.text;
    EXPECT_EQ(verdict->kind, "Mismatch");
    EXPECT_EQ(verdict->culprits, std::vector<int>{2}) << "the others agree\n" << outcome.text;
    EXPECT_THAT(verdict->message, HasSubstr("11"));
    EXPECT_TRUE(outcome.exited_with(3));
  }
}

TEST_P(Programs, ADisagreementIsToldInTheUsersWords) {
  for (const Outcome& outcome : run("described 2")) {
    const auto verdict = verdict_in(outcome.text);
    ASSERT_TRUE(verdict.has_value()) << outcome.how() << outcome.text;
    EXPECT_EQ(verdict->kind, "Mismatch");
    EXPECT_THAT(verdict->message, AllOf(HasSubstr("rank 2: gather float32[11, 1] at scenarios.cc:"),
                                        HasSubstr(": gather float32[10, 1] at scenarios.cc:"),
                                        Not(HasSubstr("all_reduce"))));
  }
}

/// The others say at which operation that rank had finished, and what they asked for.
void expect_finished(const std::vector<Outcome>& outcomes, int leaver, const std::string& where) {
  for (int rank = 0; rank < static_cast<int>(outcomes.size()); ++rank) {
    if (rank == leaver) continue;
    const auto verdict = verdict_in(outcomes[static_cast<std::size_t>(rank)].text);
    ASSERT_TRUE(verdict.has_value());
    EXPECT_EQ(verdict->code, "FAILED_PRECONDITION") << verdict->message;
    EXPECT_THAT(verdict->message, HasSubstr("it finished " + where));
  }
}

TEST_P(Programs, OneLeavesEarly) {
  for (const int rank : {0, 2}) {
    const auto outcomes = run(fmt::format("leave {}", rank));
    EXPECT_TRUE(outcomes[static_cast<std::size_t>(rank)].ok());
    expect_verdicts(outcomes, {rank}, {"PeerLost", {rank}});
    expect_finished(outcomes, rank, "at operation 1, this rank asked for 2");
  }
}

TEST_P(Programs, OneLeavesASubgroupEarly) {
  for (const int rank : {0, 2}) {
    const auto outcomes = run(fmt::format("leave {} half", rank));
    expect_verdicts(outcomes, {}, {"PeerLost", {rank}});
  }
}

TEST_P(Programs, OneLeavesWhileOthersAreInASubgroup) {
  for (const int rank : {0, 2}) {
    const auto outcomes = run(fmt::format("leave {} all", rank));
    EXPECT_TRUE(outcomes[static_cast<std::size_t>(rank)].ok());
    expect_verdicts(outcomes, {rank}, {"PeerLost", {rank}});
  }
}

TEST_P(Programs, OneLeavesWhileOthersWaitForAMessage) {
  for (const int rank : {0, 2}) {
    const auto outcomes = run(fmt::format("leave {} message", rank));
    EXPECT_TRUE(outcomes[static_cast<std::size_t>(rank)].ok());
    expect_verdicts(outcomes, {rank}, {"PeerLost", {rank}});
    expect_finished(outcomes, rank, "before its first operation, this rank asked for 1");
  }
}

void expect_parted(const std::vector<Outcome>& outcomes, int leaver) {
  expect_verdicts(outcomes, {}, {"PeerLost", {leaver}});
  for (const Outcome& outcome : outcomes) {
    EXPECT_THAT(outcome.text, HasSubstr(fmt::format("rank {} has left the group", leaver)));
  }
  const auto left = number_after(outcomes[static_cast<std::size_t>(leaver)].text, "left at ");
  ASSERT_TRUE(left.has_value());
  expect_in_time(outcomes, {}, *left, 100ms);
}

TEST_P(Programs, OneLeavesASubgroupWithoutTheMessagesOfAnother) {
  for (const char* direction : {"send", "receive"}) {
    expect_parted(run(fmt::format("part 0 {} 2", direction)), 0);
    expect_parted(run(fmt::format("part 2 {} 1", direction)), 2);
  }
}

TEST_P(Programs, AllLeaveInGoodOrder) {
  for (const Outcome& outcome : run("work 0.1 1000")) EXPECT_TRUE(outcome.ok()) << outcome.text;
}

/// Ranks hear of a death one after another, and add into each other's memory until then.
TEST(Buffers, OfAnOperationThatHasThrownAreLeftAlone) {
  for (int i = 0; i < 3; ++i) {
    ProcessCluster cluster({.ranks = 3, .scenario = "fail 16000000"});
    ASSERT_TRUE(cluster.wait_for_all("working", 20s)) << cluster.text(0);
    ASSERT_TRUE(cluster.process(2).signal(sys::Signal::kill).ok());
    const auto outcomes = cluster.finish(20s);
    for (const int rank : {0, 1}) {
      const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
      EXPECT_THAT(outcome.text, HasSubstr("16000000 of 16000000 kept")) << outcome.how();
    }
  }
}

/// A child of the dead rank holds all its sockets open: its death shows all the same, long before
/// its pulse is missed.
TEST(Orphan, OfADeadRankDoesNotHideItsDeath) {
  const auto run = [](int rank) -> std::int64_t {
    ProcessCluster cluster({.ranks = 3, .scenario = fmt::format("orphan {}", rank)});
    EXPECT_TRUE(cluster.wait_for(rank, "orphan ", 10s)) << cluster.text(rank);
    EXPECT_TRUE(cluster.wait_for_all("working", 10s)) << cluster.text(0);
    const auto child = number_after(cluster.text(rank), "orphan ");
    if (!child) return 0;
    const std::int64_t killed = now_us();
    EXPECT_TRUE(cluster.process(rank).signal(sys::Signal::kill).ok());
    for (const int other : {0, 1, 2}) {
      if (other == rank) continue;
      EXPECT_TRUE(cluster.wait_for(other, "closed after", 8s)) << cluster.text(other);
    }
    EXPECT_EQ(::kill(static_cast<pid_t>(*child), SIGKILL), 0) << "the orphan ended by itself";
    const auto outcomes = cluster.finish(5s);
    expect_verdicts(outcomes, {rank}, {"PeerLost", {rank}});
    return longest_us(outcomes, {rank}, killed);
  };
  for (const int rank : {0, 2}) expect_promise(50ms, [&] { return run(rank); });
}

/// One dies when the others have closed already: they end well and soon.
TEST_P(Programs, ADeathDuringTheShutdownHurtsNobody) {
  for (const int rank : {0, 1}) {
    ProcessCluster cluster({.ranks = 3,
                            .scenario = fmt::format("late {}", rank),
                            .wire = GetParam(),
                            .environment = {"TEST_DEAD_MS=1000"}});
    ASSERT_TRUE(cluster.wait_for_all("closing", 10s)) << cluster.text(0);
    ASSERT_TRUE(cluster.process(rank).signal(sys::Signal::kill).ok());
    const std::int64_t killed = now_us();
    const auto outcomes = cluster.finish(8s);
    EXPECT_LT(now_us() - killed, 4'000'000);
    for (const int other : {0, 1, 2}) {
      if (other == rank) continue;
      EXPECT_TRUE(outcomes[static_cast<std::size_t>(other)].ok())
          << outcomes[static_cast<std::size_t>(other)].text;
    }
  }
}

/// The same with one that is stopped: those who leave do not wait for its pulse.
TEST_P(Programs, APauseDuringTheShutdownHoldsUpNobody) {
  ProcessCluster cluster({.ranks = 3, .scenario = "late 1", .wire = GetParam()});
  ASSERT_TRUE(cluster.wait_for(1, "closing", 10s)) << cluster.text(1);
  ASSERT_TRUE(cluster.process(1).signal(sys::Signal::stop).ok());
  const std::int64_t stopped = now_us();
  for (const int rank : {0, 2}) EXPECT_TRUE(cluster.wait_for(rank, "closed after", 4s));
  const auto ended = cluster.process(0).wait(Deadline::after(4s));
  ASSERT_TRUE(ended.has_value());
  EXPECT_TRUE(ended->success());
  EXPECT_LT(now_us() - stopped, 4'000'000);
  (void)cluster.process(1).signal(sys::Signal::kill);
  EXPECT_TRUE(cluster.finish(4s)[2].ok());
}

TEST_P(Programs, JoiningAgainAfterAFailureWorks) {
  const auto outcomes = run("rejoin");
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.ok()) << outcome.how() << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("again in generation 2 after true"));
  }
}

/// D2: who survives others keeps nothing of them.
TEST_P(Programs, D2SurvivorsThatJoinAgainHoldNoMoreThanBefore) {
  const ClusterOptions options{
      .ranks = 3, .wire = GetParam(), .environment = {"TEST_DEAD_MS=1000"}};
  for (const std::string& wrong : kill_and_rejoin(options, 2, 4)) ADD_FAILURE() << wrong;
}

INSTANTIATE_TEST_SUITE_P(Over, Programs, testing::Values(Wire::local, Wire::tcp, Wire::tls),
                         [](const auto& wire) { return to_string(wire.param); });

TEST(HostsOfSeveralRanks, JoinAgainAfterAFailure) {
  ProcessCluster cluster({.ranks = 4,
                          .scenario = "rejoin",
                          .wire = Wire::tcp,
                          .hosts = {"a", "a", "b", "b"},
                          .environment = {"TEST_DEAD_MS=1000"}});
  for (const Outcome& outcome : cluster.finish(30s)) {
    EXPECT_TRUE(outcome.ok()) << outcome.how() << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("again in generation 2 after true"));
  }
}

TEST(HostsOfSeveralRanks, D2SurvivorsThatJoinAgainHoldNoMoreThanBefore) {
  const ClusterOptions options{.ranks = 4,
                               .wire = Wire::tcp,
                               .hosts = {"a", "a", "b", "b"},
                               .environment = {"TEST_DEAD_MS=1000"}};
  for (const std::string& wrong : kill_and_rejoin(options, 0, 3)) ADD_FAILURE() << wrong;
}

/// The subgroup is one of streams, the two share memory.
TEST(HostsOfSeveralRanks, OneLeavesASubgroupWithoutTheMessagesOfANeighbour) {
  for (const char* direction : {"send", "receive"}) {
    ProcessCluster cluster({.ranks = 4,
                            .scenario = fmt::format("part 2 {} 3", direction),
                            .wire = Wire::tcp,
                            .hosts = {"a", "a", "b", "b"}});
    expect_parted(cluster.finish(30s), 2);
  }
}

/// 99. health: a peer that never started, one that was restarted after a collective, an address
/// that is none for others.
TEST(Case99, APeerThatNeverStartedIsMissedAtTheDeadline) {
  ProcessCluster cluster(
      {.ranks = 2, .scenario = "work 1 10", .environment = {"TEST_JOIN_MS=500"}, .absent = {1}});
  const auto outcomes = cluster.finish(5s);
  const auto verdict = verdict_in(outcomes[0].text);
  ASSERT_TRUE(verdict.has_value()) << outcomes[0].text;
  EXPECT_EQ(verdict->code, "DEADLINE_EXCEEDED");
  EXPECT_EQ(verdict->culprits, std::vector<int>{1});
  EXPECT_THAT(verdict->message, HasSubstr("rank 1"));
}

/// It waits for the next generation, which does not come here.
TEST(Case99, ARestartedPeerIsNotTakenForItsPredecessor) {
  ProcessCluster cluster({.ranks = 2, .scenario = "stay", .environment = {"TEST_JOIN_MS=3000"}});
  ASSERT_TRUE(cluster.wait_for_all("working", 10s)) << cluster.text(0);
  ASSERT_TRUE(cluster.process(1).signal(sys::Signal::kill).ok());
  ASSERT_TRUE(cluster.wait_for(0, "failed PeerLost", 5s)) << cluster.text(0);
  ASSERT_TRUE(cluster.process(1).wait(Deadline::after(5s)).has_value());
  cluster.start(1);
  ASSERT_TRUE(cluster.wait_for(1, "failed ", 10s)) << cluster.text(1);
  const auto verdict = verdict_in(cluster.text(1));
  ASSERT_TRUE(verdict.has_value());
  EXPECT_EQ(verdict->code, "DEADLINE_EXCEEDED") << cluster.text(1);
  EXPECT_THAT(verdict->message,
              AllOf(HasSubstr("rank 0 is in generation 1 already"), HasSubstr("came later")));
  (void)cluster.process(0).signal(sys::Signal::kill);
}

TEST(Case99, ALoopbackAddressBesideOthersIsAnInvalidArgument) {
  ProcessCluster cluster({.ranks = 2,
                          .scenario = "work 1 10",
                          .addresses = {"localhost:12345", "198.51.100.7:12345"},
                          .absent = {1}});
  const auto outcomes = cluster.finish(5s);
  const auto verdict = verdict_in(outcomes[0].text);
  ASSERT_TRUE(verdict.has_value()) << outcomes[0].text;
  EXPECT_EQ(verdict->code, "INVALID_ARGUMENT");
  EXPECT_THAT(verdict->message, HasSubstr("localhost:12345"));
}

}  // namespace
}  // namespace lockstep::processes
