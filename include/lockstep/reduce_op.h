// ReduceOp: how the values of all replicas become one at the level of strategies. Written as a
// constant or, as older programs do, as a word in any case:
//
//   strategy.reduce(ReduceOp::mean, loss);
//   strategy.reduce("MEAN", loss);
//
// TensorFlow has sum and mean. Maximum and minimum are ours: they propagate NaN, take bool too, and
// have no gradient.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

class ReduceOp {
 public:
  enum Value : std::uint8_t { sum, mean, max, min };

  /// InvalidUsage for a value or a word that is none of them.
  ReduceOp(Value value);
  ReduceOp(std::string_view word);
  ReduceOp(const char* word) : ReduceOp(std::string_view(word)) {}

  operator Value() const noexcept { return value_; }
  /// "SUM", "MEAN", "MAX", "MIN".
  [[nodiscard]] std::string_view name() const noexcept;
  /// Whether it is one of the replicas' values, element by element.
  [[nodiscard]] bool picks() const noexcept { return value_ == max || value_ == min; }

 private:
  Value value_;
};

/// The axis along which each replica's tensor is reduced, too: reduce(op, x, along(0)).
struct Along {
  std::int64_t axis;
};
constexpr Along along(std::int64_t axis) noexcept { return {axis}; }

}  // namespace lockstep
