#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/algorithm.h"
#include "tests/tools/command.h"

namespace lockstep::tool {
namespace {

using testing::Contains;
using testing::StartsWith;

TEST(Plans, ProvesTheBarriers) {
  const Result result = lockstep_command("plans barrier --brief");
  EXPECT_EQ(result.code, 0) << result.out;
  const auto lines = lines_of(result.out);
  const std::size_t algorithms = plan::algorithms(plan::Kind::barrier).size();
  ASSERT_GT(lines.size(), algorithms + 3);
  EXPECT_THAT(lines.front(), testing::StartsWith("collective"));
  for (std::size_t i = 1; i <= algorithms; ++i) EXPECT_THAT(lines[i], StartsWith("barrier"));
  EXPECT_THAT(lines.back(), testing::MatchesRegex("[1-9][0-9]* cases, 0 failures"));
  EXPECT_THAT(lines, Contains(StartsWith("barrier dissemination, barrier shared")));
  EXPECT_THAT(lines, Contains(testing::MatchesRegex("  1-8, 13, 16 +0")))
      << "a barrier has no size";
}

TEST(Plans, SaysOfTheBriefSweepWhatItHasTried) {
  const Result result = lockstep_command("plans broadcast --brief");
  EXPECT_EQ(result.code, 0) << result.out;
  const auto lines = lines_of(result.out);
  const std::string sizes = "0, 1, n \\+ 1, 11 n \\+ 5 by 3";
  EXPECT_THAT(lines, Contains(testing::MatchesRegex("  1-5 +" + sizes + "; every root")));
  EXPECT_THAT(lines, Contains(testing::MatchesRegex("  6-8, 13, 16 +" + sizes + "; 4 roots")));
  EXPECT_THAT(result.out, testing::Not(testing::HasSubstr("37 n")));
}

TEST(Plans, SaysForHowManyRanksAndHostsHierarchicalIsProven) {
  const Result result = lockstep_command("plans all_reduce --brief");
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_THAT(lines_of(result.out),
              Contains(testing::MatchesRegex(
                  "all_reduce +hierarchical .* 0  2-8, 13, 16 +2-8, 13, 16 +1-3, 5")))
      << "no leader on one host: one rank is none of them";
}

TEST(Plans, ShowsTheOrderOfAdditionsProven) {
  const Result result = lockstep_command("plans reduce_scatter --brief");
  EXPECT_EQ(result.code, 0) << result.out;
  bool seen_ring = false;
  for (const std::string& line : lines_of(result.out)) {
    if (line.find(" direct ") != std::string::npos) {
      EXPECT_THAT(line, testing::HasSubstr("fixed_tree  fixed_tree"));
    }
    if (line.find(" ring ") == std::string::npos) continue;
    seen_ring = true;
    EXPECT_THAT(line, testing::HasSubstr("any         any"));
  }
  EXPECT_TRUE(seen_ring);
}

}  // namespace
}  // namespace lockstep::tool
