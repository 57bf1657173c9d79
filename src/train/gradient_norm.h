// The norm of the summed gradients over all parameters, and clipping by it.
//
// Both are called by one thread while the replicas wait, when `.grad` of each parameter is the sum.
#pragma once

#include "lockstep/optimizer.h"
#include "strategy/core.h"
#include "train/parameters.h"

namespace lockstep::train {

/// The Euclidean norm of all sums together. It has the same bits for any number of lanes.
double norm_of_sums(detail::StrategyCore& strategy, const Parameters& parameters);

/// Scales the sums by one of the two limits in the options. `norm` is that of the sums; if it is
/// not finite, they stay as they are. InvalidUsage if both limits are given, or one is not
/// positive.
void clip_sums(const Parameters& parameters, const ApplyOptions& options, double norm);

}  // namespace lockstep::train
