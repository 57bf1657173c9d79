// ElementSpec: what the tensors of a dataset's elements look like, in the order of the nest.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/tensor.h"

namespace lockstep {

/// A length that is not known, or not the same for all elements.
inline constexpr std::int64_t kUnknownLength = -1;

struct TensorSpec {
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shape = {};

  /// Every length is known.
  [[nodiscard]] bool is_static() const noexcept;
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

using ElementSpec = std::vector<TensorSpec>;

std::string to_string(const TensorSpec& spec);  // "float[?, 28, 28]"
std::ostream& operator<<(std::ostream& out, const TensorSpec& spec);

}  // namespace lockstep
