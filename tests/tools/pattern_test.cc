#include "pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace lockstep::tool {
namespace {

constexpr std::uint64_t kCount = 3 * Pattern::kPeriod + 17;

TEST(Pattern, FindsItselfRightAtItsPhaseOnly) {
  const Pattern pattern = Pattern::of_rank(DType::float32, 3);
  std::vector<std::byte> data(kCount * 4);
  pattern.fill(data.data(), kCount, 5);
  EXPECT_EQ(pattern.wrong(data.data(), kCount, 5), 0U);
  EXPECT_EQ(pattern.wrong(data.data(), kCount, 5 + Pattern::kPeriod), 0U);
  EXPECT_EQ(pattern.wrong(data.data(), kCount, 6), kCount);
  EXPECT_EQ(Pattern::of_rank(DType::float32, 2).wrong(data.data(), kCount, 5), kCount);
}

TEST(Pattern, CountsEachWrongElementOnce) {
  const Pattern pattern = Pattern::of_rank(DType::int64, 0);
  std::vector<std::byte> data(kCount * 8);
  pattern.fill(data.data(), kCount, 1);
  for (const std::size_t element : {std::size_t{0}, std::size_t{1500}, kCount - 1}) {
    data[element * 8] ^= std::byte{1};
    data[element * 8 + 7] ^= std::byte{1};
  }
  EXPECT_EQ(pattern.wrong(data.data(), kCount, 1), 3U);
}

TEST(Pattern, ResultsAreThoseOfTheInputs) {
  for (const Op op : {Op::sum, Op::product, Op::min, Op::max, Op::mean}) {
    for (const int ranks : {1, 2, 3, 8, Pattern::kMaxRanks}) {
      std::vector<double> expected(Pattern::kPeriod, op == Op::product ? 1 : 0);
      std::vector<double> value(Pattern::kPeriod);
      for (int rank = 0; rank < ranks; ++rank) {
        Pattern::input_of(op, DType::float64, {ranks}, rank)
            .fill(reinterpret_cast<std::byte*>(value.data()), value.size(), 0);
        for (std::size_t i = 0; i < value.size(); ++i) {
          if (op == Op::sum || op == Op::mean) expected[i] += value[i];
          if (op == Op::product) expected[i] *= value[i];
          if (op == Op::min) expected[i] = rank == 0 ? value[i] : std::min(expected[i], value[i]);
          if (op == Op::max) expected[i] = rank == 0 ? value[i] : std::max(expected[i], value[i]);
        }
      }
      for (double& number : expected) number /= op == Op::mean ? ranks : 1;
      const Pattern result = Pattern::result_of(op, DType::float64, {ranks});
      EXPECT_EQ(result.wrong(reinterpret_cast<std::byte*>(expected.data()), expected.size(), 0), 0U)
          << to_string(op) << " of " << ranks;
    }
  }
}

TEST(Pattern, SmallNumbersInSixteenBits) {
  const Pattern halves = Pattern::result_of(Op::sum, DType::float16, {2});
  const Pattern floats = Pattern::result_of(Op::sum, DType::float32, {2});
  std::vector<std::uint16_t> half(100);
  std::vector<float> value(100);
  halves.fill(reinterpret_cast<std::byte*>(half.data()), half.size(), 0);
  floats.fill(reinterpret_cast<std::byte*>(value.data()), value.size(), 0);
  for (std::size_t i = 0; i < value.size(); ++i) {
    const int exponent = (half[i] >> 10) - 15;
    EXPECT_EQ(std::ldexp(1.0 + (half[i] & 0x3ff) / 1024.0, exponent), value[i]);
  }
}

}  // namespace
}  // namespace lockstep::tool
