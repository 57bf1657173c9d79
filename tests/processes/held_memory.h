// What the scenario `splits` says of the memory that groups hold.
#pragma once

#include <chrono>
#include <vector>

#include "tests/processes/cluster.h"

namespace lockstep::processes {

/// In KiB: of the segment that the ranks of a host share, and of the heap of one rank.
struct Held {
  int before = 0;  // of all rounds
  int early = 0;   // after the first hundred
  int open = 0;    // after the last one
  int closed = 0;
  int heap_before = 0;
  int heap_early = 0;
  int heap_open = 0;
};

/// Of each rank of the cluster, whose scenario is `splits`.
std::vector<Held> held_after(const ClusterOptions& options,
                             std::chrono::seconds patience = std::chrono::seconds(60));

}  // namespace lockstep::processes
