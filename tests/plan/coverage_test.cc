#include "plan/coverage.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::plan {
namespace {

using testing::ElementsAre;

TEST(Coverage, NumbersAreWrittenAsRuns) {
  EXPECT_EQ(text_of(std::set<int>{}), "");
  EXPECT_EQ(text_of({4}), "4");
  EXPECT_EQ(text_of({1, 2, 3, 5, 32, 33}), "1-3, 5, 32-33");
}

TEST(Coverage, HasTheNumbersOfItsLayouts) {
  Coverage ran;
  ran.add(Layout::uniform(4));
  ran.add(Layout({1, 2, 5}, {7, 3, 7}));
  EXPECT_THAT(ran.ranks(), ElementsAre(3, 4));
  EXPECT_THAT(ran.hosts(), ElementsAre(1, 2));
  EXPECT_THAT(ran.replicas(), ElementsAre(1, 2, 5));
}

std::string words(const Coverage& ran) {
  std::string all;
  for (const auto& [ranks, text] : ran.requests()) all += fmt::format("{}: {}\n", ranks, text);
  return all;
}

TEST(Coverage, SaysWhichSizesWereTriedWithWhichRanks) {
  Coverage ran;
  const Request request{.kind = Kind::all_reduce};
  for (const int ranks : {1, 2, 3, 8}) {
    ran.add(ranks, {{1, -1, kWhole}, request});
    ran.add(ranks, {{0, 0, kWhole}, request});
    if (ranks > 2) ran.add(ranks, {{11, 5, 3}, request});
  }
  EXPECT_EQ(words(ran), "1-2: 0, n - 1\n3, 8: 0, n - 1, 11 n + 5 by 3\n");
}

TEST(Coverage, SaysWhetherEveryRootWasTried) {
  const auto tried = [](int of_small, int of_large) {
    Coverage ran;
    for (int root = 0; root < of_small; ++root) {
      ran.add(6, {{1, 0, kWhole}, {.kind = Kind::reduce, .root = root}});
    }
    for (int root = 0; root < of_large; ++root) {
      ran.add(6, {{3, 2, 1}, {.kind = Kind::reduce, .root = root}});
    }
    return words(ran);
  };
  EXPECT_EQ(tried(6, 6), "6: n, 3 n + 2 by 1; every root\n");
  EXPECT_EQ(tried(4, 6),
            "6: n, 3 n + 2 by 1; every root with 3 n + 2 by 1, 4 roots with the others\n");
  EXPECT_EQ(tried(4, 4), "6: n, 3 n + 2 by 1; 4 roots\n");
}

}  // namespace
}  // namespace lockstep::plan
