#include "tensor/torch_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "lockstep/error.h"
#include "tensor/dtype.h"

namespace lockstep::tensor {

std::string shape_text(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return fmt::format("[{}]", fmt::join(tensor.sizes().vec(), ", "));
}

std::string type_text(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  std::string type = c10::toString(tensor.scalar_type());
  try {
    type = to_string(to_dtype(tensor.scalar_type()));
  } catch (const Unsupported&) {  // libtorch's own word for it then
  }
  return fmt::format("{}{}{}", tensor.is_sparse() ? "sparse " : "", type, shape_text(tensor));
}

std::string type_text(const std::vector<Tensor>& tensors) {
  std::vector<std::string> kinds;
  for (const Tensor& tensor : tensors) {
    std::string kind = type_text(tensor);
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  }
  return fmt::format("{}", fmt::join(kinds, ", "));
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
