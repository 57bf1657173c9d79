// For an error that every worker has found: whoever threw at once would leave the generation while
// others are still in the call that let them find it, and they would blame him.
#pragma once

#include "strategy/workers.h"

namespace lockstep::detail {

/// Returns when all workers are here, or the group has ended; null: this process is alone.
void meet_before_throwing(Workers* workers) noexcept;

}  // namespace lockstep::detail
