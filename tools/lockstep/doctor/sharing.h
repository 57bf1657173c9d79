// Checks of cores across ranks: whether those of a host have been put on the same few.
#pragma once

#include "doctor/finding.h"
#include "lockstep/coll/session.h"

namespace lockstep::tool {

/// A collective. Rank 0 gets a finding for each host whose ranks have too few cores among them.
Findings check_sharing(coll::Session& group);

}  // namespace lockstep::tool
