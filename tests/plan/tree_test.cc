#include "plan/tree.h"

#include <gtest/gtest.h>

#include "plan/layout.h"

namespace lockstep::plan {
namespace {

TEST(Tree, SplitsAtTheLargestPowerOfTwoBelow) {
  EXPECT_EQ(split({0, 2}), 1);
  EXPECT_EQ(split({0, 3}), 2);
  EXPECT_EQ(split({0, 4}), 2);
  EXPECT_EQ(split({0, 5}), 4);
  EXPECT_EQ(split({0, 8}), 4);
  EXPECT_EQ(split({4, 7}), 6);
  EXPECT_EQ(split({0, 65}), 64);
}

TEST(Tree, KnowsItsSubtrees) {
  EXPECT_TRUE(is_subtree({0, 6}, 6));
  EXPECT_TRUE(is_subtree({4, 6}, 6));
  EXPECT_TRUE(is_subtree({2, 4}, 6));
  EXPECT_FALSE(is_subtree({1, 3}, 6));
  EXPECT_FALSE(is_subtree({0, 3}, 6));
  EXPECT_TRUE(is_subtree({4, 7}, 7));
  EXPECT_FALSE(is_subtree({4, 7}, 8));
}

TEST(Tree, ForestOfARange) {
  EXPECT_EQ(forest({0, 3}, 6), (std::vector<Node>{{0, 2}, {2, 3}}));
  EXPECT_EQ(forest({3, 6}, 6), (std::vector<Node>{{3, 4}, {4, 6}}));
  EXPECT_EQ(forest({0, 6}, 6), (std::vector<Node>{{0, 6}}));
}

TEST(Tree, ForestsTileEveryRangeWithFewSubtrees) {
  for (int n = 1; n <= 70; ++n) {
    for (int a = 0; a < n; ++a) {
      for (int b = a + 1; b <= n; ++b) {
        int next = a;
        const std::vector<Node> nodes = forest({a, b}, n);
        for (const Node node : nodes) {
          ASSERT_EQ(node.lo, next);
          ASSERT_TRUE(is_subtree(node, n));
          next = node.hi;
        }
        ASSERT_EQ(next, b);
        ASSERT_LE(nodes.size(), 12U);
      }
    }
  }
}

TEST(Tree, MergesOfTwoByThree) {
  const Node pieces[] = {{0, 2}, {2, 3}, {3, 4}, {4, 6}};
  EXPECT_EQ(merges(pieces), (std::vector<std::uint8_t>{0, 0, 2, 1}));
}

TEST(Tree, MergesOfLeavesAreABinaryCounter) {
  const Node leaves[] = {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 7}};
  EXPECT_EQ(merges(leaves), (std::vector<std::uint8_t>{0, 1, 0, 2, 0, 1, 2}));
  EXPECT_EQ(merges(std::vector<Node>{{3, 4}}), (std::vector<std::uint8_t>{0}));
}

TEST(Layout, NumbersReplicasAcrossRanks) {
  const Layout layout({2, 1, 3}, {5, 5, 9});
  EXPECT_EQ(layout.ranks(), 3);
  EXPECT_EQ(layout.replicas(), 6);
  EXPECT_EQ(layout.first(2), 3);
  EXPECT_EQ(layout.replicas(2), 3);
  const int expected[] = {0, 0, 1, 2, 2, 2};
  for (int replica = 0; replica < 6; ++replica) {
    EXPECT_EQ(layout.rank_of(replica), expected[replica]);
  }
  EXPECT_EQ(layout.host(1), 5);
  EXPECT_EQ(Layout::uniform(3, 2), Layout({2, 2, 2}));
}

}  // namespace
}  // namespace lockstep::plan
