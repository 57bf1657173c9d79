// Preferences: what decides which algorithm carries out a call, from a session's options or the
// environment.
#pragma once

#include "base/env.h"
#include "lockstep/coll/options.h"
#include "plan/cost.h"
#include "plan/select.h"

namespace lockstep::coll {

struct Preferences {
  plan::Costs costs;
  plan::Overrides overrides;
};

/// What the options leave open is the environment's. InvalidUsage for options that cannot be
/// understood, ConfigError naming the variable for the environment's.
Preferences preferences_of(const SessionOptions& options,
                           const Environment& surroundings = environment());

}  // namespace lockstep::coll
