// Checks of the machine: cores and their number of ranks, memory, limits of the process.
#pragma once

#include "doctor/finding.h"

namespace lockstep::tool {

/// `local_ranks`: ranks on this host, as far as known; at least 1.
Findings check_machine(int local_ranks);

/// The processor and its widest vectors, in words: what libraries choose their arithmetic by.
std::string processor_text();

}  // namespace lockstep::tool
