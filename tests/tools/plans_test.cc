#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/algorithm.h"
#include "tests/tools/command.h"

namespace lockstep::tool {
namespace {

TEST(Plans, ProvesTheBarriers) {
  const Result result = lockstep_command("plans barrier --brief");
  EXPECT_EQ(result.code, 0) << result.out;
  const auto lines = lines_of(result.out);
  const std::size_t algorithms = plan::algorithms(plan::Kind::barrier).size();
  ASSERT_EQ(lines.size(), algorithms + 3);
  EXPECT_THAT(lines.front(), testing::StartsWith("collective"));
  EXPECT_THAT(lines.back(), testing::MatchesRegex("[1-9][0-9]* cases, 0 failures"));
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
