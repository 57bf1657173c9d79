// The names of the public enumerations, in one place.
#include "lockstep/dtype.h"
#include "lockstep/op.h"

namespace lockstep {

std::string_view to_string(DType type) noexcept {
  constexpr std::string_view names[kDTypeCount] = {"float64", "float32", "float16",   "bfloat16",
                                                   "int8",    "int16",   "int32",     "int64",
                                                   "uint8",   "bool",    "complex64", "complex128"};
  return names[static_cast<std::size_t>(type)];
}

std::string_view to_string(Op op) noexcept {
  constexpr std::string_view names[kOpCount] = {"sum", "product", "min", "max", "mean"};
  return names[static_cast<std::size_t>(op)];
}

}  // namespace lockstep
