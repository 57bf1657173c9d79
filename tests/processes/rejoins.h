// Ranks that survive others, again and again: what they hold when all is over is what they held
// before they joined at all.
#pragma once

#include <string>
#include <vector>

#include "tests/processes/cluster.h"

namespace lockstep::processes {

/// Kills the victim in every generation but the last, and starts it anew. In words, what was not as
/// it should be; empty if all was well.
std::vector<std::string> kill_and_rejoin(ClusterOptions options, int victim, int generations);

}  // namespace lockstep::processes
