// Checks of names: what this host is called, and what the addresses of the cluster resolve to.
#pragma once

#include <string>
#include <vector>

#include "doctor/finding.h"

namespace lockstep::tool {

/// `addresses` and `rank` as for joining. Waits some seconds for each name at most.
Findings check_names(const std::vector<std::string>& addresses, int rank);

}  // namespace lockstep::tool
