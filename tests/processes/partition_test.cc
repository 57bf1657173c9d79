// Two halves of a cluster that cannot hear each other any more, or not for a while, or hardly.
// Needs root.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/processes/fault_checks.h"
#include "tests/processes/one_network.h"
#include "tests/processes/scenarios.h"
#include "tests/processes/two_networks.h"

namespace lockstep::processes {
namespace {

using namespace std::chrono_literals;

/// A11, A13: nothing is refused or closed, only silence tells. Each half blames the other.
void expect_both_sides_end(const std::string& scenario, int each) {
  TwoNetworks networks;
  ClusterOptions options = networks.cluster(scenario, each);
  options.environment = {"TEST_DEAD_MS=1000"};
  ProcessCluster cluster(options);
  ASSERT_TRUE(cluster.wait_for_all("working", 15s)) << cluster.text(0);
  networks.cut();
  const std::int64_t cut = now_us();
  const auto outcomes = cluster.finish(8s);
  for (int rank = 0; rank < options.ranks; ++rank) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    const auto verdict = verdict_in(outcome.text);
    ASSERT_TRUE(verdict.has_value()) << "rank " << rank << " " << outcome.how() << outcome.text;
    EXPECT_EQ(verdict->kind, "PeerLost") << outcome.text;
    EXPECT_TRUE(outcome.exited_with(3));
    const int first_of_side = rank < each ? 0 : each;
    const auto same = verdict_in(outcomes[static_cast<std::size_t>(first_of_side)].text);
    EXPECT_EQ(verdict->culprits, same->culprits) << outcome.text;
    for (const int culprit : verdict->culprits) EXPECT_NE(culprit < each, rank < each);
  }
  expect_in_time(outcomes, {}, cut, 1200ms);
}

TEST(Partition, A11TwoRanksAtWork) { expect_both_sides_end("work 20 100000", 1); }
TEST(Partition, A13TwoByTwoAtWork) { expect_both_sides_end("work 20 10000", 2); }
TEST(Partition, A13TwoByTwoIdle) { expect_both_sides_end("idle 20", 2); }

/// C14: nothing answers and nothing refuses. Both sides say at the deadline whom they miss.
TEST(Partition, C14WhileJoining) {
  TwoNetworks networks;
  ClusterOptions options = networks.cluster("work 1 10", 2);
  options.environment = {"TEST_JOIN_MS=1500"};
  networks.cut();
  ProcessCluster cluster(options);
  const auto outcomes = cluster.finish(10s);
  for (int rank = 0; rank < options.ranks; ++rank) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    const auto verdict = verdict_in(outcome.text);
    ASSERT_TRUE(verdict.has_value()) << "rank " << rank << " " << outcome.how() << outcome.text;
    EXPECT_EQ(verdict->kind, "Timeout") << outcome.text;
    const auto missed = rank < 2 ? std::vector<int>{2, 3} : std::vector<int>{0};
    EXPECT_EQ(verdict->culprits, missed) << outcome.text;
  }
}

/// Those who have closed do not wait for those they cannot hear; who has not closed misses them.
TEST(Partition, DuringTheShutdown) {
  TwoNetworks networks;
  ClusterOptions options = networks.cluster("late 3", 2);
  options.environment = {"TEST_DEAD_MS=1000"};
  ProcessCluster cluster(options);
  ASSERT_TRUE(cluster.wait_for_all("closing", 15s)) << cluster.text(0);
  networks.cut();
  const std::int64_t cut = now_us();
  for (const int rank : {0, 1, 2}) {
    const auto ended = cluster.process(rank).wait(Deadline::after(8s));
    EXPECT_TRUE(ended && ended->success()) << cluster.text(rank);
  }
  EXPECT_LT(now_us() - cut, 7'000'000);
  (void)cluster.process(3).signal(sys::Signal::kill);
}

/// A14: gaps shorter than what counts as dead change nothing but the time.
TEST(Partition, A14AFlappingLinkIsSurvived) {
  TwoNetworks networks;
  ClusterOptions options = networks.cluster("work 4 10000", 1);
  options.environment = {"TEST_DEAD_MS=3000"};
  ProcessCluster cluster(options);
  ASSERT_TRUE(cluster.wait_for_all("working", 15s)) << cluster.text(0);
  for (int i = 0; i < 5; ++i) {
    networks.cut();
    std::this_thread::sleep_for(200ms);
    networks.mend();
    std::this_thread::sleep_for(400ms);
  }
  for (const Outcome& outcome : cluster.finish(15s)) EXPECT_TRUE(outcome.ok()) << outcome.text;
}

/// A17: as long as bytes move nobody gives up, though one sum takes longer than a rank may hang.
TEST(Partition, A17ASlowLinkIsReportedAndWaitedFor) {
  TwoNetworks networks;
  ClusterOptions options = networks.cluster("work 0.1 150000", 1);
  options.environment = {"TEST_PROGRESS_MS=2000"};
  networks.narrow("1mbit");
  const std::int64_t begin = now_us();
  ProcessCluster cluster(options);
  for (const Outcome& outcome : cluster.finish(60s)) {
    EXPECT_TRUE(outcome.ok()) << outcome.text;
    EXPECT_THAT(outcome.text, testing::ContainsRegex("moved, [0-9.]+ KiB/s, about [0-9]+ s to go"));
  }
  EXPECT_GT(now_us() - begin, 4'000'000);  // 600 kB in each direction
}

/// A15: between ranks 1 and 3 of four there is no control connection, and both are well. Nothing may
/// be on its way from the other one when it begins: then the direction is not known.
class SilentLoss : public testing::TestWithParam<Wire> {
 protected:
  static void expect_named(const std::vector<OneNetwork::Way>& ways, const std::string& words) {
    OneNetwork network(4);
    ClusterOptions options = network.cluster("work 30 1000000", GetParam());
    options.environment = {"TEST_DEAD_MS=1000", "TEST_ALGORITHMS=all_reduce=direct"};
    ProcessCluster cluster(options);
    ASSERT_TRUE(cluster.wait_for_all("working", 15s)) << cluster.text(0);
    for (const OneNetwork::Way way : ways) network.lose(way);
    const std::int64_t lost = now_us();
    const auto outcomes = cluster.finish(10s);
    expect_verdicts(outcomes, {}, {"PeerLost", {1, 3}});
    expect_in_time(outcomes, {}, lost, 1700ms);
    for (const Outcome& outcome : outcomes) {
      EXPECT_THAT(outcome.text, testing::ContainsRegex(words));
    }
  }
};

TEST_P(SilentLoss, A15OneWay) {
  expect_named(
      {{.from = 3, .to = 1}},
      "packets (from rank 3 to rank 1|between rank 3 and rank 1|between rank 1 and rank 3) [(]");
}

TEST_P(SilentLoss, A15BothWays) {
  expect_named({{.from = 1, .to = 3}, {.from = 3, .to = 1}},
               "packets between (rank 1 and rank 3|rank 3 and rank 1) [(]");
}

INSTANTIATE_TEST_SUITE_P(Over, SilentLoss, testing::Values(Wire::tcp, Wire::tls),
                         [](const auto& each) { return to_string(each.param); });

}  // namespace
}  // namespace lockstep::processes
