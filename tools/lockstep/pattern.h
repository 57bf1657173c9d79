// Pattern: test data whose every element is known, so that a benchmark can count wrong results.
//
// Elements repeat with a prime period, so filling and checking run at the speed of memory and yet a
// block that lands in the wrong place is seen. The phase shifts the pattern: each iteration takes
// another one, so a result left over from the iteration before is wrong.
//
//   Pattern mine = Pattern::input_of(Op::sum, DType::float32, {.ranks = 4}, /*rank=*/2);
//   mine.fill(buffer, count, phase);
//
// Results of reductions are exact in every type for up to kMaxRanks ranks, in any order of
// additions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/dtype.h"
#include "lockstep/op.h"

namespace lockstep::tool {

class Pattern {
 public:
  static constexpr int kMaxRanks = 64;
  static constexpr std::uint64_t kPeriod = 1021;

  struct Group {
    int ranks = 1;
  };

  /// Bits that belong to this rank alone: for collectives that move and do not add.
  static Pattern of_rank(DType dtype, int rank);
  /// What a rank gives to a reduction, and what the reduction of all of them is.
  static Pattern input_of(Op op, DType dtype, Group group, int rank);
  static Pattern result_of(Op op, DType dtype, Group group);

  void fill(std::byte* data, std::uint64_t count, std::uint64_t phase) const;
  /// Elements that differ from the pattern.
  [[nodiscard]] std::uint64_t wrong(const std::byte* data, std::uint64_t count,
                                    std::uint64_t phase) const;

 private:
  explicit Pattern(DType dtype) : width_(size_of(dtype)), table_(2 * kPeriod * width_) {}
  /// Completes the table after its first period has been written.
  void repeat();
  [[nodiscard]] const std::byte* at(std::uint64_t phase) const {
    return table_.data() + phase % kPeriod * width_;
  }

  std::size_t width_;
  std::vector<std::byte> table_;  // two periods: any rotation of one is contiguous
};

}  // namespace lockstep::tool
