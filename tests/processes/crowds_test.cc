// Many ranks join, and ranks wait for long. These take minutes.
#include "tests/processes/crowds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace lockstep::processes {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

TEST(LargeCrowds, F1RanksOfOneAddressJoinWithAKey) { join_again_and_again({.ranks = kCrowd}); }

/// Every five seconds one line says who is missing, and it is the same on all ranks.
TEST(LongWaits, AllRanksSayTheSameOfWhoIsMissing) {
  for (const Wire wire : {Wire::local, Wire::tls}) {
    ProcessCluster cluster({.ranks = 3,
                            .scenario = "work 0.1 10",
                            .wire = wire,
                            .environment = {"TEST_JOIN_MS=11500"},
                            .absent = {2}});
    const auto outcomes = cluster.finish(30s);
    for (const int rank : {0, 1}) {
      const std::string& text = outcomes[static_cast<std::size_t>(rank)].text;
      EXPECT_THAT(text, HasSubstr("rank 0 has waited 5 s to join: rank 2 "));
      EXPECT_THAT(text, HasSubstr("rank 0 has waited 10 s to join: rank 2 "));
      EXPECT_THAT(text, Not(HasSubstr("rank 1 has waited")));
    }
  }
}

/// A frame has no room for all of them.
TEST(LongWaits, OfHundredsThatAreMissingTheFirstAreNamed) {
  constexpr int kMany = 400;
  std::vector<int> absent;
  for (int rank = 2; rank < kMany; ++rank) absent.push_back(rank);
  ProcessCluster cluster({.ranks = kMany,
                          .scenario = "work 0.1 10",
                          .wire = Wire::tcp,
                          .environment = {"TEST_JOIN_MS=6000"},
                          .absent = absent});
  const auto outcomes = cluster.finish(30s);
  for (const int rank : {0, 1}) {
    const std::string& text = outcomes[static_cast<std::size_t>(rank)].text;
    EXPECT_THAT(text, HasSubstr("rank 0 has waited 5 s to join: rank 2 (")) << rank;
    EXPECT_THAT(text, HasSubstr(" and 386 more missing, 2 of 400 joined")) << rank;
    EXPECT_TRUE(outcomes[static_cast<std::size_t>(rank)].exited_with(3)) << text;
  }
}

}  // namespace
}  // namespace lockstep::processes
