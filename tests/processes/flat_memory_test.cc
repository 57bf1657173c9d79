// Groups that come and go for a long time; processes_test.cc has the same for a short one.
#include <gtest/gtest.h>

#include <chrono>

#include "tests/processes/held_memory.h"

namespace lockstep::processes {
namespace {

void expect_flat(const ClusterOptions& options) {
  for (const Held& held : held_after(options, std::chrono::minutes(10))) {
    EXPECT_LE(held.open, held.early + 1024) << "KiB";
    EXPECT_LE(held.heap_open, held.heap_early + 1024) << "KiB";
  }
}

TEST(FlatMemory, TenThousandRoundsOfSplitAndMessage) {
  expect_flat({.ranks = 2, .scenario = "splits 10000"});
}

TEST(FlatMemory, TenThousandRoundsOverTcp) {
  expect_flat({.ranks = 2, .scenario = "splits 10000", .wire = Wire::tcp});
}

}  // namespace
}  // namespace lockstep::processes
