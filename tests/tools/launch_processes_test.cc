// What `lockstep launch` says of ranks that are in one group, when one of them fails.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/command.h"

namespace lockstep::tool {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Ranks that play a scenario; rank 1's process ends a while after it has left the group.
Result launched(int ranks, const std::string& scenario) {
  return lockstep_command(
      fmt::format("launch -n {} -- sh -c '\"{}\" \"{}\"; code=$?; if [ $LOCKSTEP_RANK = 1 ]; then "
                  "sleep 0.5; fi; exit $code'",
                  ranks, LOCKSTEP_RANK_PROGRAM, scenario));
}

// Rank 1 throws outside of every operation, and unwinds. The others find it gone and end at once.
TEST(LaunchedRanks, TheFirstCauseIsWhoLeftNotWhoFoundOut) {
  for (const int ranks : {2, 3, 4}) {
    const Result result = launched(ranks, "throw 1");
    EXPECT_EQ(result.code, 5) << result.err;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("first cause: rank 1 "), HasSubstr("rank 0 exited with 3")));
  }
}

TEST(LaunchedRanks, ADisagreementHasNoVictims) {
  const Result result = launched(2, "mismatch 1");
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, AllOf(HasSubstr("first cause: rank "), Not(HasSubstr("to blame"))));
}

int times_in(const std::string& text, const std::string& part) {
  int times = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++times;
  return times;
}

// Neither a log line of the library nor the launcher says again what the exception says.
TEST(LaunchedRanks, AnErrorsTextStandsOnce) {
  const Result alone = lockstep_command(
      fmt::format("launch -n 1 -- sh -c '\"{}\" \"throw 0\" 1>&2'", LOCKSTEP_RANK_PROGRAM));
  EXPECT_EQ(alone.code, 5) << alone.err;
  EXPECT_EQ(times_in(alone.err, "a bug of the user"), 1) << alone.err;
  const Result two = lockstep_command(
      fmt::format("launch -n 2 -- sh -c '\"{}\" \"throw 1\" 1>&2; code=$?; if [ $LOCKSTEP_RANK = 1 "
                  "]; then sleep 0.5; fi; exit $code'",
                  LOCKSTEP_RANK_PROGRAM));
  EXPECT_EQ(times_in(two.err, "failed PeerLost"), 1) << two.err;
  EXPECT_EQ(times_in(two.err, "rank 1 has left the group"), 1) << two.err;
}

}  // namespace
}  // namespace lockstep::tool
