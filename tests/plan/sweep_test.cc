#include "plan/sweep.h"

#include <gtest/gtest.h>

#include "plan/form.h"

namespace lockstep::plan {
namespace {

class Sweep : public testing::TestWithParam<Algorithm> {};

TEST_P(Sweep, IsProven) {
  const SweepRow row = sweep(GetParam(), {.extent = Extent::brief});
  EXPECT_TRUE(row.right()) << row.failures << " of " << row.cases
                           << " cases, the first: " << row.first_failure;
  EXPECT_GT(row.cases, 0U);
}

/// The plans of an algorithm, with the values of a layout that it should not look at and without.
void expect_same_plans(const Algorithm& algorithm, const Layout& layout, const Layout& plain) {
  for (Case& one : cases_for(algorithm.kind, layout.ranks(), Extent::brief)) {
    for (const Accumulator accumulator : {Accumulator::same, Accumulator::wide}) {
      one.request.accumulator = accumulator;
      ASSERT_EQ(algorithm.refuses(one.request, layout), algorithm.refuses(one.request, plain));
      if (!algorithm.refuses(one.request, layout).empty()) continue;
      ASSERT_EQ(make_all(algorithm, one.request, layout), make_all(algorithm, one.request, plain))
          << describe(algorithm, one.request, layout, Aliasing::separate);
    }
  }
}

/// The sweep leaves out layouts for which one request has the plans of a simpler layout.
TEST(Layouts, HostsMatterToHierarchicalAlone) {
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.name == "hierarchical") continue;
    for (const Layout& layout : layouts_for(Extent::brief)) {
      std::vector<int> replicas;
      for (int r = 0; r < layout.ranks(); ++r) replicas.push_back(layout.replicas(r));
      expect_same_plans(algorithm, layout, Layout(replicas));
    }
  }
}

TEST(Layouts, ReplicasMatterToReductionsAlone) {
  for (const Algorithm& algorithm : algorithms()) {
    if (is_reduction(algorithm.kind)) continue;
    for (const Layout& layout : layouts_for(Extent::brief)) {
      expect_same_plans(algorithm, layout, Layout::uniform(layout.ranks()));
    }
  }
}

TEST(Row, TellsOfCasesThatRanOnly) {
  Algorithm ring = *find_algorithm(Kind::all_reduce, "ring");
  ring.refuses = [](const Request& request, const Layout& layout) -> std::string {
    return layout.ranks() > 3 || request.count == 0 ? "not today" : "";
  };
  const SweepRow row = sweep(ring, {.extent = Extent::brief});
  EXPECT_EQ(text_of(row.ran.ranks()), "1-3");
  ASSERT_EQ(row.ran.requests().size(), 1U);
  EXPECT_EQ(row.ran.requests().front().text, "1, n + 1, 11 n + 5 by 3");
  EXPECT_GT(row.refused, 0U);
}

TEST(Row, HierarchicalIsProvenForEveryNumberOfHosts) {
  const Algorithm& hierarchical = *find_algorithm(Kind::all_reduce, "hierarchical");
  const SweepRow row = sweep(hierarchical, {.extent = Extent::brief});
  EXPECT_EQ(text_of(row.ran.ranks()), "2-8, 13, 16") << "one rank has no two hosts";
  EXPECT_EQ(text_of(row.ran.hosts()), "2-8, 13, 16");
  EXPECT_EQ(row.alike, 0U);
}

TEST(Row, SaysThatTheBriefSweepLeavesOutRoots) {
  const SweepRow row = sweep(*find_algorithm(Kind::broadcast, "shared"), {.extent = Extent::brief});
  const auto lines = row.ran.requests();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].ranks, "1-5");
  EXPECT_EQ(lines[0].text, "0, 1, n + 1, 11 n + 5 by 3; every root");
  EXPECT_EQ(lines[1].ranks, "6-8, 13, 16");
  EXPECT_EQ(lines[1].text, "0, 1, n + 1, 11 n + 5 by 3; 4 roots");
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
