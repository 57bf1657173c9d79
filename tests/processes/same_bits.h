// Whether a cluster of processes gives the bits that threads give.
#pragma once

#include <string>

#include "tests/processes/cluster.h"

namespace lockstep::processes {

/// Runs the cluster, whose scenario is an exercise, and compares every result of every rank; each
/// rank must say that this transport carries it.
void expect_same_bits(const ClusterOptions& options, const std::string& transport);

}  // namespace lockstep::processes
