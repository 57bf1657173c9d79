#include "tensor/dtype.h"

#include <fmt/format.h>

#include "lockstep/error.h"

namespace lockstep::tensor {

DType to_dtype(at::ScalarType type) {
  switch (type) {
    case at::ScalarType::Double:
      return DType::float64;
    case at::ScalarType::Float:
      return DType::float32;
    case at::ScalarType::Half:
      return DType::float16;
    case at::ScalarType::BFloat16:
      return DType::bfloat16;
    case at::ScalarType::Char:
      return DType::int8;
    case at::ScalarType::Short:
      return DType::int16;
    case at::ScalarType::Int:
      return DType::int32;
    case at::ScalarType::Long:
      return DType::int64;
    case at::ScalarType::Byte:
      return DType::uint8;
    case at::ScalarType::Bool:
      return DType::boolean;
    case at::ScalarType::ComplexFloat:
      return DType::complex64;
    case at::ScalarType::ComplexDouble:
      return DType::complex128;
    default:
      throw Unsupported(fmt::format(
          "tensors of dtype {} cannot be reduced or sent; convert to one of float64, "
          "float32, float16, bfloat16, int8 to int64, uint8, bool, complex64, complex128",
          c10::toString(type)));
  }
}

at::ScalarType to_scalar_type(DType type) noexcept {
  switch (type) {
    case DType::float64:
      return at::ScalarType::Double;
    case DType::float32:
      return at::ScalarType::Float;
    case DType::float16:
      return at::ScalarType::Half;
    case DType::bfloat16:
      return at::ScalarType::BFloat16;
    case DType::int8:
      return at::ScalarType::Char;
    case DType::int16:
      return at::ScalarType::Short;
    case DType::int32:
      return at::ScalarType::Int;
    case DType::int64:
      return at::ScalarType::Long;
    case DType::uint8:
      return at::ScalarType::Byte;
    case DType::boolean:
      return at::ScalarType::Bool;
    case DType::complex64:
      return at::ScalarType::ComplexFloat;
    case DType::complex128:
      return at::ScalarType::ComplexDouble;
  }
  return at::ScalarType::Undefined;
}

DType mean_dtype(DType type) noexcept {
  if (!is_integer(type)) return type;
  return size_of(type) <= 2 ? DType::float32 : DType::float64;
}

}  // namespace lockstep::tensor
