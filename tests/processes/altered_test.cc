// A bit that flips between two ranks, on each kind of connection: all ranks throw DataError and
// name the link, or the numbers are right. And a connection that breaks while both ranks are well.
// The ids are those of the catalogue of failures.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/processes/fault_checks.h"
#include "tests/processes/relay.h"

namespace lockstep::processes {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

class Altered : public testing::Test {
 protected:
  /// Three ranks at work; rank 2 reaches rank 1 through a relay, which alters a bit in the middle
  /// of it.
  std::vector<Outcome> run(Wire wire, Relay::What what) {
    ClusterOptions options{.ranks = 3, .scenario = "work 20 300000", .wire = wire};
    const std::vector<int> ports = free_ports(3);
    for (const int port : ports) options.addresses.push_back(fmt::format("127.0.0.1:{}", port));
    const std::string behind = options.addresses[1];
    Relay relay(behind);
    options.addresses[1] = relay.address();
    options.environment_of[1] = {"LOCKSTEP_BIND=" + behind};
    ProcessCluster cluster(options);
    EXPECT_TRUE(cluster.wait_for_all("working", 10s)) << cluster.text(0);
    relay.flip(what);
    // `work` compares every number, so that one that is wrong would show here.
    for (int rank = 0; rank < cluster.size(); ++rank) {
      EXPECT_TRUE(cluster.wait_for(rank, "closed after", 10s)) << cluster.text(rank);
    }
    flipped_us_ = relay.flipped_us();
    EXPECT_NE(flipped_us_, 0);
    return cluster.finish(5s);
  }

  /// All name the link between 1 and 2, in the same words, soon.
  void expect_the_link_is_named(const std::vector<Outcome>& outcomes) const {
    expect_verdicts(outcomes, {}, {"DataError", {1, 2}});
    expect_in_time(outcomes, {}, flipped_us_, 200ms);
    for (const Outcome& outcome : outcomes) {
      const auto verdict = verdict_in(outcome.text);
      ASSERT_TRUE(verdict.has_value());
      EXPECT_EQ(verdict->code, "DATA_LOSS");
      EXPECT_EQ(cause(*verdict), cause(*verdict_in(outcomes[0].text)));
      EXPECT_THAT(verdict->message, AllOf(HasSubstr("rank 1"), HasSubstr("rank 2"),
                                          HasSubstr("altered on"), HasSubstr("127.0.0.1:")));
    }
  }
  /// The part that reads alike on all ranks.
  static std::string cause(const Verdict& verdict) {
    return verdict.message.substr(
        0, verdict.message.rfind(" rank ", verdict.message.find(" had asked for ")));
  }

  std::int64_t flipped_us_ = 0;
};

void expect_the_operation_is_named(const std::vector<Outcome>& outcomes) {
  EXPECT_THAT(
      verdict_in(outcomes[0].text)->message,
      testing::ContainsRegex("operation [0-9]+ .all_reduce sum float32.300000.. was .*bytes "
                             "[0-9]+ to [0-9]+ that it sent"));
}

TEST_F(Altered, B21DataInPlainTextAfterAHandshake) {
  const auto outcomes = run(Wire::plaintext, Relay::What::data_frame);
  expect_the_link_is_named(outcomes);
  expect_the_operation_is_named(outcomes);
}

TEST_F(Altered, B21DataWithoutAKey) {
  const auto outcomes = run(Wire::tcp, Relay::What::data_frame);
  expect_the_link_is_named(outcomes);
  expect_the_operation_is_named(outcomes);
}

TEST_F(Altered, B21APulseWithoutAKey) {
  expect_the_link_is_named(run(Wire::tcp, Relay::What::control_frame));
}

TEST_F(Altered, B21F11DataUnderTls) {
  const auto outcomes = run(Wire::tls, Relay::What::tls_data);
  expect_the_link_is_named(outcomes);
  EXPECT_THAT(verdict_in(outcomes[0].text)->message, HasSubstr("(all_reduce sum float32[300000]"));
}

TEST_F(Altered, ABrokenConnectionBetweenRanksThatAreWellIsNamed) {
  const auto outcomes = run(Wire::tls, Relay::What::cut);
  expect_verdicts(outcomes, {}, {"PeerLost", {1, 2}});
  expect_in_time(outcomes, {}, flipped_us_, 3s + 200ms);
  EXPECT_THAT(verdict_in(outcomes[0].text)->message, HasSubstr("though both ranks are well"));
}

}  // namespace
}  // namespace lockstep::processes
