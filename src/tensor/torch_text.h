// Tensors in messages.
#pragma once

#include <ATen/core/Scalar.h>

#include <string>
#include <vector>

#include "lockstep/tensor.h"

namespace lockstep::tensor {

/// "[2, 3]"; "undefined".
std::string shape_text(const Tensor& tensor);
/// "int64[2, 3]", "sparse float32[4, 2]"; "undefined".
std::string type_text(const Tensor& tensor);
/// Those of a list, each kind once: "float32[3], float32[4]".
std::string type_text(const std::vector<Tensor>& tensors);
/// "5.0", "3", "true".
std::string scalar_text(const at::Scalar& value);

}  // namespace lockstep::tensor
