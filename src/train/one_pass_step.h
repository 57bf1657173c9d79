// Steps in one pass over memory, where torch::optim takes several: the same arithmetic, to the bit,
// with less traffic.
#pragma once

// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <torch/optim/optimizer.h>

#include "tensor/parts.h"

namespace lockstep::train {

/// Divides the work on a parameter among threads.
using InParts = void (*)(const Tensor&, FunctionRef<void(std::size_t, std::size_t)>);

/// Takes the step that optimizer.step() would take, and says so; or false, and nothing has changed.
/// Then it is none of torch::optim's SGD, Adam and AdamW, or has other parameters than dense ones
/// of float32 and float64, or libtorch rounds otherwise on this processor, or the step is one that
/// makes state: the first.
///
/// A parameter of more than 32,768 elements is divided among as many threads as libtorch's own
/// operators would use on this thread; the bits do not depend on how it is divided. (`in_parts` is
/// for tests that look at the division.)
///
/// InvalidUsage, before anything has changed, if the state of a parameter lacks a tensor that these
/// options need (a momentum buffer, say): libtorch would read one that is not there.
bool step_in_one_pass(torch::optim::Optimizer& optimizer, InParts in_parts = tensor::in_parts);

}  // namespace lockstep::train
