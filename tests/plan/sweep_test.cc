#include "plan/sweep.h"

#include <gtest/gtest.h>

namespace lockstep::plan {
namespace {

class Sweep : public testing::TestWithParam<Algorithm> {};

TEST_P(Sweep, IsProven) {
  const SweepRow row = sweep(GetParam(), {.extent = Extent::brief});
  EXPECT_TRUE(row.right()) << row.failures << " of " << row.cases
                           << " cases, the first: " << row.first_failure;
  EXPECT_GT(row.cases, 0U);
}

TEST(Order, TheRingIsNotTheFixedTree) {
  const Request request{.count = 64};
  const Layout layout = Layout::uniform(8);
  const Algorithm& ring = *find_algorithm(Kind::all_reduce, "ring");
  const Verdict verdict = check(ring, request, layout);
  EXPECT_EQ(verdict.problem, "");
  EXPECT_EQ(verdict.order, Order::any);
  EXPECT_EQ(ring.order, Order::any);
}

TEST(Order, OnlyRingsDeclareAnOrderOfTheirOwn) {
  for (const Algorithm& algorithm : algorithms()) {
    EXPECT_EQ(algorithm.order == Order::any,
              algorithm.name == "ring" && algorithm.kind != Kind::all_gather)
        << to_string(algorithm.kind) << " " << algorithm.name;
  }
}

/// A row is wrong if the proven order is not the declared one, even if every case was proven.
TEST(Order, ADeclarationThatDoesNotHoldIsAFailure) {
  Algorithm ring = *find_algorithm(Kind::all_reduce, "ring");
  ring.order = Order::fixed_tree;
  const SweepRow row = sweep(ring, {.extent = Extent::brief});
  EXPECT_FALSE(row.right());
  EXPECT_GT(row.failures, 0U);
  EXPECT_NE(row.first_failure.find("not associated as the fixed tree"), std::string::npos);
}

TEST(Catalogue, TheFirstOfEachKindServesEverythingByMessages) {
  for (int kind = 0; kind < kKindCount; ++kind) {
    const std::span<const Algorithm> all = algorithms(static_cast<Kind>(kind));
    ASSERT_FALSE(all.empty());
    EXPECT_EQ(all.front().access, Access::messages);
    EXPECT_EQ(all.front().order, Order::fixed_tree);
    EXPECT_EQ(all.front().refuses({.kind = static_cast<Kind>(kind), .count = 1'000'000},
                                  Layout({1, 3, 2}, {0, 1, 0})),
              "");
    for (const Algorithm& algorithm : all) {
      EXPECT_EQ(find_algorithm(algorithm.kind, algorithm.name), &algorithm);
    }
  }
  EXPECT_EQ(find_algorithm(Kind::barrier, "ring"), nullptr);
}

std::string name_of(const testing::TestParamInfo<Algorithm>& info) {
  return std::string(to_string(info.param.kind)) + "_" + std::string(info.param.name);
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Sweep,
                         testing::ValuesIn(algorithms().begin(), algorithms().end()), name_of);

}  // namespace
}  // namespace lockstep::plan
