// The complete sweep, by the label "slow": all ranks from 1 to 17 and some up to 64.
#include <gtest/gtest.h>

#include "plan/sweep.h"

namespace lockstep::plan {
namespace {

TEST(CompleteSweep, EveryAlgorithmIsProven) {
  std::uint64_t reports = 0;
  const auto rows =
      sweep({.extent = Extent::complete, .progress = [&](const SweepRow&) { ++reports; }});
  EXPECT_EQ(rows.size(), algorithms().size());
  EXPECT_GT(reports, rows.size());
  for (const SweepRow& row : rows) {
    EXPECT_TRUE(row.right()) << row.failures << " of " << row.cases << ": " << row.first_failure;
    EXPECT_EQ(row.ranks, "1-17, 24, 32-33, 64");
  }
}

}  // namespace
}  // namespace lockstep::plan
