// Tensors in messages.
#pragma once

#include <ATen/core/Scalar.h>

#include <string>

#include "lockstep/tensor.h"

namespace lockstep::tensor {

/// "[2, 3]"; "undefined".
std::string shape_text(const Tensor& tensor);
/// "5.0", "3", "true".
std::string scalar_text(const at::Scalar& value);

}  // namespace lockstep::tensor
