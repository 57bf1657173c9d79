// The 16-bit conversions: the scalar reference against first principles, and the vector code of
// every instruction set against the scalar reference.
#include "kernel/round.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernel/reduce.h"
#include "tests/kernel/targets.h"

namespace lockstep::kernel {
namespace {

constexpr int kPatterns = 1 << 16;

template <class T>
T from_bits(int bits) {
  return {static_cast<std::uint16_t>(bits)};
}

template <class T>
T round_to(float value) {
  if constexpr (std::is_same_v<T, Float16>) {
    return to_float16(value);
  } else {
    return to_bfloat16(value);
  }
}

template <class T>
constexpr DType kDType = dtype_of<T>;

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// Maximum takes a single input through as it is: promotion or rounding and nothing else.
template <class T>
void convert(const void* from, Form from_form, void* to, Form to_form, std::size_t count) {
  const Input inputs[] = {{from, from_form}};
  const Target targets[] = {{to, to_form}};
  reduce({.op = Op::max,
          .dtype = kDType<T>,
          .inputs = inputs,
          .merges = tree_merges(1),
          .targets = targets,
          .count = count});
}

template <class T>
void expect_rounding_matches(const std::vector<float>& values) {
  std::vector<T> expected(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) expected[i] = round_to<T>(values[i]);
  std::vector<T> actual(values.size());
  for (const std::int64_t target : available_targets()) {
    const OnTarget on(target);
    std::memset(actual.data(), 0xAB, actual.size() * sizeof(T));
    convert<T>(values.data(), Form::partial, actual.data(), Form::value, values.size());
    if (std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(T)) == 0) continue;
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(actual[i].bits, expected[i].bits)
          << hwy::TargetName(target) << ": 0x" << std::hex << bits_of(values[i]);
    }
  }
}

template <class T>
class Half : public testing::Test {};
using HalfTypes = testing::Types<Float16, BFloat16>;
TYPED_TEST_SUITE(Half, HalfTypes);

TYPED_TEST(Half, PromotionOfEveryPatternMatchesOnEveryTarget) {
  using T = TypeParam;
  std::vector<T> values(kPatterns);
  std::vector<float> expected(kPatterns);
  for (int i = 0; i < kPatterns; ++i) {
    values[i] = from_bits<T>(i);
    expected[i] = to_float(values[i]);
  }
  for (const std::int64_t target : available_targets()) {
    const OnTarget on(target);
    std::vector<float> actual(kPatterns, -1.0F);
    convert<T>(values.data(), Form::value, actual.data(), Form::partial, kPatterns);
    for (int i = 0; i < kPatterns; ++i) {
      ASSERT_EQ(bits_of(actual[i]), bits_of(expected[i]))
          << hwy::TargetName(target) << ": 0x" << std::hex << i;
    }
  }
}

TYPED_TEST(Half, EveryExactValueComesBack) {
  for (int i = 0; i < kPatterns; ++i) {
    const auto value = from_bits<TypeParam>(i);
    const float wide = to_float(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(to_float(round_to<TypeParam>(wide))));
    } else {
      ASSERT_EQ(round_to<TypeParam>(wide).bits, i);
    }
  }
}

TYPED_TEST(Half, TiesGoToEvenAndNeighboursToTheNearest) {
  using T = TypeParam;
  const int infinity = std::is_same_v<T, Float16> ? 0x7C00 : 0x7F80;
  for (int i = 0; i < infinity; ++i) {
    const float low = to_float(from_bits<T>(i));
    // The value above the largest is where the next power of two would be.
    const float high = i + 1 == infinity ? std::ldexp(1.0F, 127) : to_float(from_bits<T>(i + 1));
    double middle = (static_cast<double>(low) + high) / 2;
    if (i + 1 == infinity) {
      middle = low + (static_cast<double>(low) - to_float(from_bits<T>(i - 1))) / 2;
    }
    const auto tie = static_cast<float>(middle);
    ASSERT_EQ(tie, middle) << "a midpoint is a float32";
    const int even = i % 2 == 0 ? i : i + 1;
    for (const int sign : {0, 0x8000}) {
      const float s = sign == 0 ? 1.0F : -1.0F;
      ASSERT_EQ(round_to<T>(s * tie).bits, even | sign) << i;
      ASSERT_EQ(round_to<T>(s * std::nextafter(tie, 0.0F)).bits, i | sign) << i;
      ASSERT_EQ(round_to<T>(s * std::nextafter(tie, INFINITY)).bits, (i + 1) | sign) << i;
    }
  }
}

TYPED_TEST(Half, RoundingMatchesAtEveryValueMidpointAndNeighbour) {
  using T = TypeParam;
  std::vector<float> values;
  for (int i = 0; i < kPatterns; ++i) {
    const std::uint32_t exact = bits_of(to_float(from_bits<T>(i)));
    // Half a step of the normals; float16's subnormals have wider steps, all swept.
    const std::uint32_t half = std::is_same_v<T, Float16> ? 0x1000 : 0x8000;
    for (const std::uint32_t offset : {0U, half}) {
      for (const std::uint32_t nudge : {0xFFFF'FFFFU, 0U, 1U}) {
        values.push_back(float_of(exact + offset + nudge));
      }
    }
    for (int shift = 13; shift <= 24; ++shift) {
      for (const std::uint32_t nudge : {0xFFFF'FFFFU, 0U, 1U}) {
        values.push_back(float_of(exact + ((1U << shift) >> 1) + nudge));
      }
    }
  }
  expect_rounding_matches<T>(values);
}

TYPED_TEST(Half, RoundingMatchesOnAStrideThroughAllFloats) {
  std::vector<float> values;
  for (std::uint64_t bits = 0; bits < (1ULL << 32); bits += 4093) {  // prime
    values.push_back(float_of(static_cast<std::uint32_t>(bits)));
  }
  expect_rounding_matches<TypeParam>(values);
}

TEST(Round, NanStaysNanAndKeepsItsSign) {
  EXPECT_EQ(to_bfloat16(float_of(0x7F80'0001)).bits, 0x7FC0);
  EXPECT_EQ(to_bfloat16(float_of(0xFFFF'FFFF)).bits, 0xFFFF);
  EXPECT_EQ(to_float16(float_of(0x7F80'0001)).bits, 0x7E00);
  EXPECT_EQ(to_float16(float_of(0xFFFF'FFFF)).bits, 0xFFFF);
  EXPECT_EQ(bits_of(to_float(Float16{0x7C01})), 0x7FC0'2000U);
}

TEST(Round, LargeValuesBecomeInfinity) {
  EXPECT_EQ(to_float16(65519.996F).bits, 0x7BFF);
  EXPECT_EQ(to_float16(65520.0F).bits, 0x7C00);
  EXPECT_EQ(to_float16(-1e30F).bits, 0xFC00);
  EXPECT_EQ(to_bfloat16(float_of(0x7F7F'7FFF)).bits, 0x7F7F);
  EXPECT_EQ(to_bfloat16(float_of(0x7F7F'8000)).bits, 0x7F80);
}

}  // namespace
}  // namespace lockstep::kernel
