// Op: how the values of all replicas become one.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

enum class Op : std::uint8_t {
  sum,
  product,
  min,
  max,
  mean,  // the sum divided once by the number of replicas; floating and complex types only
};

inline constexpr int kOpCount = 5;

std::string_view to_string(Op op) noexcept;

}  // namespace lockstep
