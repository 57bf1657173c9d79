// Very many ranks join, again and again.
#pragma once

#include <gtest/gtest.h>

#include <chrono>

#include "tests/processes/cluster.h"

namespace lockstep::processes {

inline constexpr int kCrowd = 128;
inline constexpr int kJoins = 20;

/// Rank 0 comes last: all others call it as soon as it listens.
inline void join_again_and_again(ClusterOptions options) {
  options.scenario = "work 0.01 10";
  options.wire = Wire::tls;
  options.environment = {"TEST_JOIN_MS=60000"};
  options.absent = {0};
  for (int join = 0; join < kJoins && !testing::Test::HasFailure(); ++join) {
    ProcessCluster cluster(options);
    cluster.start(0);
    for (const Outcome& outcome : cluster.finish(std::chrono::seconds(90))) {
      ASSERT_TRUE(outcome.ok()) << "join " << join << ": " << outcome.how() << "\n" << outcome.text;
    }
  }
}

}  // namespace lockstep::processes
