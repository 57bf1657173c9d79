// The complete sweep, by the label "slow": all ranks from 1 to 17 and some up to 64.
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/sweep.h"

namespace lockstep::plan {
namespace {

const std::vector<int> kRanks = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                                 12, 13, 14, 15, 16, 17, 24, 32, 33, 64};

std::string name_of(const Algorithm& algorithm) {
  return std::string(to_string(algorithm.kind)) + " " + std::string(algorithm.name);
}

/// Whether a layout with as many ranks and hosts and so many replicas a rank was proven.
bool proven(const Coverage& ran, int ranks, int hosts, int replicas) {
  return std::any_of(ran.layouts().begin(), ran.layouts().end(), [&](const Layout& layout) {
    return layout.ranks() == ranks && layout.hosts() == hosts &&
           layout.replicas() == ranks * replicas && layout.most_replicas() == replicas;
  });
}

/// What there are no plans for: one host has no leaders, one rank nothing to stage, and doubling
/// and halving want the replicas of a rank to be a subtree.
bool exists(const Algorithm& algorithm, int ranks, int hosts, int replicas) {
  if (algorithm.kind != Kind::all_reduce) return true;
  if (algorithm.name == "hierarchical") return hosts > 1;
  if (algorithm.name == "staged") return ranks > 1;
  if (algorithm.name == "doubling" || algorithm.name == "halving") {
    return ranks == 1 || replicas <= 2;
  }
  return true;
}

void expect_all_layouts(const Algorithm& algorithm, const Coverage& ran) {
  for (const int ranks : kRanks) {
    for (const int hosts : {1, 2, 3, ranks}) {
      if (hosts > ranks) continue;
      for (const int replicas : {1, 2, 3, 5}) {
        EXPECT_EQ(proven(ran, ranks, hosts, replicas), exists(algorithm, ranks, hosts, replicas))
            << name_of(algorithm) << ", " << ranks << " ranks, " << hosts << " hosts, " << replicas
            << " replicas a rank";
      }
    }
  }
}

/// Nothing, one element, sizes that n divides not; and each root with one of them at least.
void expect_sizes_and_roots(const Algorithm& algorithm, const Coverage& ran) {
  for (const auto& [ranks, sizes] : ran.by_ranks()) {
    std::set<std::uint64_t> elements;
    std::size_t roots = 0;
    for (const auto& [size, tried] : sizes) {
      elements.insert(size.elements(ranks));
      roots = std::max(roots, tried.size());
    }
    EXPECT_TRUE(elements.contains(0)) << name_of(algorithm) << ", " << ranks << " ranks";
    if (algorithm.kind != Kind::barrier) {
      EXPECT_TRUE(elements.contains(1)) << name_of(algorithm) << ", " << ranks << " ranks";
      EXPECT_GE(elements.size(), 3U) << name_of(algorithm) << ", " << ranks << " ranks";
    }
    if (is_rooted(algorithm.kind)) {
      EXPECT_EQ(roots, static_cast<std::size_t>(ranks)) << name_of(algorithm);
    }
  }
}

TEST(CompleteSweep, EveryAlgorithmIsProven) {
  std::uint64_t reports = 0;
  const auto rows =
      sweep({.extent = Extent::complete, .progress = [&](const SweepRow&) { ++reports; }});
  EXPECT_EQ(rows.size(), algorithms().size());
  EXPECT_GT(reports, rows.size());
  for (const SweepRow& row : rows) {
    EXPECT_TRUE(row.right()) << row.failures << " of " << row.cases << ": " << row.first_failure;
    expect_all_layouts(*row.algorithm, row.ran);
    expect_sizes_and_roots(*row.algorithm, row.ran);
  }
}

}  // namespace
}  // namespace lockstep::plan
