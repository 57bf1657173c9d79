#include "plan/cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::plan {
namespace {

using testing::HasSubstr;

TEST(ParseCosts, ReplacesWhatIsNamed) {
  Costs costs;
  ASSERT_TRUE(
      parse_costs("memory.alpha=0.5, tcp.bandwidth = 2e9,reduce.bandwidth=4e9", costs).ok());
  EXPECT_DOUBLE_EQ(costs.memory.alpha_us, 0.5);
  EXPECT_DOUBLE_EQ(costs.memory.beta_us_per_byte, Costs().memory.beta_us_per_byte);
  EXPECT_DOUBLE_EQ(costs.tcp.beta_us_per_byte, 1.0 / 2000);
  EXPECT_DOUBLE_EQ(costs.gamma_us_per_byte, 1.0 / 4000);
  ASSERT_TRUE(parse_costs("", costs).ok());
  EXPECT_DOUBLE_EQ(costs.memory.alpha_us, 0.5);
}

TEST(ParseCosts, TheStagingIsMeasuredUnlessNamed) {
  Costs costs;
  ASSERT_TRUE(parse_costs("tcp.alpha=2", costs).ok());
  EXPECT_FALSE(costs.staging.has_value());
  ASSERT_TRUE(parse_costs("staged.chunk=512K", costs).ok());
  EXPECT_EQ(costs.staging, (Staging{.chunk_bytes = 512 << 10}));
  ASSERT_TRUE(parse_costs("staged.around_cache=1", costs).ok());
  EXPECT_EQ(costs.staging, (Staging{.chunk_bytes = 512 << 10, .stores = SlotStores::around_cache}));
  ASSERT_TRUE(parse_costs("staged.around_cache=0,staged.chunk=4096", costs).ok());
  EXPECT_EQ(costs.staging, (Staging{.chunk_bytes = 4096}));
}

TEST(ParseCosts, SaysWhereATextIsWrong) {
  const auto error = [](const char* text) {
    Costs costs;
    const Status status = parse_costs(text, costs);
    EXPECT_FALSE(status.ok()) << text;
    EXPECT_EQ(costs.tcp.alpha_us, Costs().tcp.alpha_us) << "a bad text changes nothing";
    return status.message();
  };
  EXPECT_THAT(error("tcp.alpha=1,disk.alpha=3"), HasSubstr("costs: at offset 12: expected memory"));
  EXPECT_THAT(error("tcp.alpha"), HasSubstr("at offset 9: expected '='"));
  EXPECT_THAT(error("tcp.alpha=fast"),
              HasSubstr("at offset 10: expected a number, found \"fast\""));
  EXPECT_THAT(error("tcp.alpha=-1"), HasSubstr("at offset 10: expected a time"));
  EXPECT_THAT(error("tcp.bandwidth=0"), HasSubstr("expected a bandwidth above zero"));
  EXPECT_THAT(error("tcp.alpha=nan"), HasSubstr("expected a number"));
  EXPECT_THAT(error("staged.chunk=0"), HasSubstr("expected a multiple of 4K, 1M at most"));
  EXPECT_THAT(error("staged.chunk=5000"), HasSubstr("expected a multiple of 4K, 1M at most"));
  EXPECT_THAT(error("staged.chunk=2M"), HasSubstr("expected a multiple of 4K, 1M at most"));
  EXPECT_THAT(error("staged.chunk=-4K"), HasSubstr("at offset 13: expected a size"));
  EXPECT_THAT(error("staged.around_cache=2"), HasSubstr("expected 0 or 1"));
  EXPECT_THAT(error("tcp.alpha=1 2"), HasSubstr("at offset 12: expected ','"));
}

TEST(Estimate, EveryAlgorithmHasAFormulaOfItsOwn) {
  for (const Algorithm& algorithm : algorithms()) {
    ASSERT_NE(algorithm.work, nullptr) << to_string(algorithm.kind) << " " << algorithm.name;
    for (const Algorithm& other : algorithms(algorithm.kind)) {
      EXPECT_EQ(other.work == algorithm.work, &other == &algorithm)
          << to_string(algorithm.kind) << ": " << algorithm.name << " and " << other.name;
    }
  }
}

TEST(Estimate, IsFiniteAndGrowsWithSize) {
  const Layout layouts[] = {Layout::uniform(1), Layout::uniform(2), Layout::uniform(7, 3),
                            Layout({1, 1, 1, 1, 1}, {0, 0, 1, 1, 1})};
  for (const Algorithm& algorithm : algorithms()) {
    for (const Layout& layout : layouts) {
      for (const Access access : {Access::messages, Access::shared}) {
        double before = 0;
        for (const std::uint64_t count : {0ULL, 1ULL, 1000ULL, 1'000'000ULL, 1'000'000'000ULL}) {
          Request request{.kind = algorithm.kind, .count = count};
          request.counts.assign(static_cast<std::size_t>(layout.ranks()), count);
          const double now = estimate(algorithm, request, layout, 4, access, Costs());
          EXPECT_TRUE(std::isfinite(now));
          EXPECT_GE(now, before) << algorithm.name;
          if (algorithm.kind != Kind::barrier && count > 0) {
            EXPECT_GT(now, before) << algorithm.name;
          }
          before = now;
        }
      }
    }
  }
}

TEST(Estimate, FollowsTheFormulas) {
  const Costs costs{.memory = {1, 0.5}, .tcp = {100, 2}, .gamma_us_per_byte = 0};
  const Request request{.count = 1000};
  const Layout four = Layout::uniform(4);
  const auto time = [&](const char* name, Access access) {
    return estimate(*find_algorithm(Kind::all_reduce, name), request, four, 4, access, costs);
  };
  // Two rounds of 4000 bytes each, and a quarter of a latency for each of two messages.
  EXPECT_DOUBLE_EQ(time("doubling", Access::messages), 2.5 * 100 + 2 * 4000 * 2);
  EXPECT_DOUBLE_EQ(time("halving", Access::messages), 5 * 100 + 2 * 3000 * 2);
  EXPECT_DOUBLE_EQ(time("ring", Access::messages), 6 * 100 + 2 * 3000 * 2);
  EXPECT_DOUBLE_EQ(time("slots", Access::shared), 1 + 0.75);
  EXPECT_DOUBLE_EQ(time("one_pass", Access::shared), 2 + 1.5);
}

}  // namespace
}  // namespace lockstep::plan
