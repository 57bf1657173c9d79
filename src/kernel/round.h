// Conversions between float32 and the 16-bit types, element by element: the reference that the
// vector code must match bit for bit. Rounding is to nearest, ties to even; NaN stays NaN (quiet,
// payload truncated); infinities, zeros and subnormals are exact.
#pragma once

#include "lockstep/dtype.h"

namespace lockstep::kernel {

float to_float(BFloat16 value) noexcept;
float to_float(Float16 value) noexcept;
BFloat16 to_bfloat16(float value) noexcept;
Float16 to_float16(float value) noexcept;

}  // namespace lockstep::kernel
