// Gradients that are not numbers.
#pragma once

#include <string>

#include "lockstep/tensor.h"

namespace lockstep::train {

/// In one pass, and without memory of its own. Dense or sparse, of any dtype.
bool is_finite(const Tensor& gradient);

/// Of one that is not: "2 of 12 elements, the first (nan) at 5", counting row by row.
std::string describe_non_finite(const Tensor& gradient);

}  // namespace lockstep::train
