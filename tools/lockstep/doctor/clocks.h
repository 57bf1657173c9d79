// Checks of clocks: how far the ranks' wall clocks are from rank 0's, by messages to and fro.
#pragma once

#include "doctor/finding.h"
#include "lockstep/coll/session.h"

namespace lockstep::tool {

/// A collective. Rank 0 gets a finding for each host's first rank, the others none.
Findings check_clocks(coll::Session& group);

}  // namespace lockstep::tool
