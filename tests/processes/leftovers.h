// Leftovers: what a cluster of processes may not leave behind on this machine.
#pragma once

#include <string>
#include <vector>

#include "tests/processes/cluster.h"

namespace lockstep::processes {

/// Descriptors that this process has open.
int open_descriptors();

/// In words, what is left once all ranks have ended: children, ports that cannot be had, socket
/// files with random names. Empty if all is clean. What a rank that lives on still holds of ranks
/// that died, rejoins.h looks for.
std::vector<std::string> leftovers(const ProcessCluster& cluster);

}  // namespace lockstep::processes
