// Tensor: libtorch's own, under our name.
//
// The order of these includes matters: clang 14 cannot parse libtorch's headers in C++20 unless
// ivalue.h comes first. Include this one before <torch/torch.h> and both compilers are content.
// Only the tensor and its operators are here; a single operation is <ATen/ops/name.h>, a third of
// the compile time of everything.
#pragma once

// clang-format off
#include <ATen/core/ivalue.h>
// clang-format on
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

namespace lockstep {

using Tensor = at::Tensor;

}  // namespace lockstep
