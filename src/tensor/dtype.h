// libtorch's element types and ours.
#pragma once

#include <c10/core/ScalarType.h>

#include "lockstep/dtype.h"

namespace lockstep::tensor {

/// Unsupported, naming the type, for one that no reduction knows (quantized, complex32, ...).
DType to_dtype(at::ScalarType type);

at::ScalarType to_scalar_type(DType type) noexcept;

/// What the mean of values of this type is: 8- and 16-bit integers give float32, longer ones
/// float64, every other type itself.
DType mean_dtype(DType type) noexcept;

}  // namespace lockstep::tensor
