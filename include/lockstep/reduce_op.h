// ReduceOp: how the values of all replicas become one at the level of strategies. Written as a
// constant or, as older programs do, as a word in any case:
//
//   strategy.reduce(ReduceOp::mean, loss);
//   strategy.reduce("MEAN", loss);
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

class ReduceOp {
 public:
  enum Value : std::uint8_t { sum, mean };

  /// InvalidUsage for a value that is neither sum nor mean.
  ReduceOp(Value value);
  ReduceOp(std::string_view word);
  ReduceOp(const char* word) : ReduceOp(std::string_view(word)) {}

  operator Value() const noexcept { return value_; }
  [[nodiscard]] std::string_view name() const noexcept { return value_ == sum ? "SUM" : "MEAN"; }

 private:
  Value value_;
};

/// The axis along which each replica's tensor is reduced, too: reduce(op, x, along(0)).
struct Along {
  std::int64_t axis;
};
constexpr Along along(std::int64_t axis) noexcept { return {axis}; }

}  // namespace lockstep
