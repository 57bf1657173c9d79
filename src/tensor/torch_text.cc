#include "tensor/torch_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

namespace lockstep::tensor {

std::string shape_text(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return fmt::format("[{}]", fmt::join(tensor.sizes().vec(), ", "));
}

std::string scalar_text(const at::Scalar& value) {
  if (value.isBoolean()) return value.toBool() ? "true" : "false";
  if (value.isIntegral(false)) return fmt::format("{}", value.toLong());
  if (value.isFloatingPoint()) {
    const double number = value.toDouble();
    return std::trunc(number) == number && std::abs(number) < 1e15 ? fmt::format("{:.1f}", number)
                                                                   : fmt::format("{}", number);
  }
  return fmt::format("{}+{}i", value.toComplexDouble().real(), value.toComplexDouble().imag());
}

}  // namespace lockstep::tensor
