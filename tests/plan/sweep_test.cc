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

std::string name_of(const testing::TestParamInfo<Algorithm>& info) {
  return std::string(to_string(info.param.kind)) + "_" + std::string(info.param.name);
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Sweep,
                         testing::ValuesIn(algorithms().begin(), algorithms().end()), name_of);

}  // namespace
}  // namespace lockstep::plan
