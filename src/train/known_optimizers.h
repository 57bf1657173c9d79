// Which optimizers are torch's own, of which it is known what a step does and keeps.
#pragma once

// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <torch/optim/optimizer.h>

namespace lockstep::train {

/// SGD, Adam, AdamW, Adagrad, RMSprop or LBFGS itself: a step draws no random numbers and does not
/// write to `.grad`. One derived from them may do anything.
bool is_torchs_own(const torch::optim::Optimizer& optimizer);
/// One of these, or derived from it: its state under a parameter is of a type that is known.
bool has_torchs_state(const torch::optim::Optimizer& optimizer);

}  // namespace lockstep::train
