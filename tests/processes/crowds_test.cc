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

}  // namespace
}  // namespace lockstep::processes
