// Steps in one pass over memory, where torch::optim takes several: the same arithmetic, to the bit,
// with less traffic.
#pragma once

// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <torch/optim/optimizer.h>

namespace lockstep::train {

/// Takes the step that optimizer.step() would take, and says so; or false, and nothing has changed.
/// Then it is none of torch::optim's SGD, Adam and AdamW, or has other parameters than dense ones
/// of float32 and float64, or libtorch rounds otherwise on this processor, or the step is one that
/// makes state: the first.
bool step_in_one_pass(torch::optim::Optimizer& optimizer);

}  // namespace lockstep::train
