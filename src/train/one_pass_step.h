// Steps in one pass over memory, where torch::optim takes several: the same arithmetic, to the bit,
// with a third less traffic.
#pragma once

#include <torch/optim/optimizer.h>

namespace lockstep::train {

/// Takes the step that optimizer.step() would take, and says so; or false, and nothing has changed:
/// then it is no torch::optim::SGD of dense float32 or float64 alone, or libtorch rounds otherwise
/// on this processor, or the step is one that makes state (the first with momentum).
bool step_in_one_pass(torch::optim::Optimizer& optimizer);

}  // namespace lockstep::train
