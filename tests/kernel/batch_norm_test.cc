// Batch normalisation's passes: the vector code of every instruction set against plain loops.
#include "kernel/batch_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernel/targets.h"

namespace lockstep::kernel {
namespace {

/// Vectors and rests of every length, groups of one and several runs, nothing at all.
const ChannelShape kShapes[] = {{0, 3, 5},    {4, 0, 5},    {4, 3, 0},   {1, 1, 1},
                                {7, 3, 1},    {100, 37, 1}, {500, 8, 1}, {3, 2, 31},
                                {2, 3, 33},   {5, 4, 784},  {90, 2, 49}, {2, 2, 4100},
                                {1, 1, 9000}, {3000, 2, 2}, {40, 70, 3}};

template <class T>
std::vector<T> wave(std::size_t count, double middle, double frequency) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<T>(middle + std::sin(static_cast<double>(i + 1) * frequency));
  }
  return values;
}

std::size_t size_of(const ChannelShape& shape) {
  return shape.outer * shape.channels * shape.inner;
}

template <class F>
void for_each_element(const ChannelShape& shape, const F& fn) {
  for (std::size_t i = 0; i < size_of(shape); ++i) fn(i, i / shape.inner % shape.channels);
}

std::vector<Moments> moments_slowly(const auto& values, const ChannelShape& shape) {
  std::vector<long double> sums(shape.channels);
  std::vector<long double> squares(shape.channels);
  const auto n = static_cast<double>(shape.count());
  for_each_element(shape, [&](std::size_t i, std::size_t c) { sums[c] += values[i]; });
  for_each_element(shape, [&](std::size_t i, std::size_t c) {
    const long double away = values[i] - sums[c] / n;
    squares[c] += away * away;
  });
  std::vector<Moments> result(shape.channels);
  for (std::size_t c = 0; c < shape.channels && n > 0; ++c) {
    result[c] = {n, static_cast<double>(sums[c] / n), static_cast<double>(squares[c])};
  }
  return result;
}

template <class T>
void expect_passes() {
  const double epsilon = std::numeric_limits<T>::epsilon();
  for (const ChannelShape& shape : kShapes) {
    SCOPED_TRACE(::testing::Message() << shape.outer << " x " << shape.channels << " x "
                                      << shape.inner << ", " << sizeof(T) << " bytes");
    const std::size_t size = size_of(shape);
    const auto values = wave<T>(size, 30, 0.37);
    const auto gradients = wave<T>(size, 0.1, 0.73);
    const auto n = static_cast<double>(shape.count());

    std::vector<Moments> moments(shape.channels, Moments{9, 9, 9});
    channel_moments(values.data(), shape, moments.data());
    const std::vector<Moments> expected = moments_slowly(values, shape);
    for (std::size_t c = 0; c < shape.channels; ++c) {
      EXPECT_EQ(moments[c].count, expected[c].count);
      EXPECT_NEAR(moments[c].mean, expected[c].mean, 100 * epsilon);
      EXPECT_NEAR(moments[c].squares, expected[c].squares, 200 * epsilon * (n + 1));
    }

    const auto centre = wave<T>(shape.channels, 30, 1.1);
    std::vector<GradientSums> sums(shape.channels, GradientSums{9, 9});
    channel_gradient_sums(GradientMemory<T>{values.data(), gradients.data()}, shape, centre.data(),
                          sums.data());
    std::vector<GradientSums> expected_sums(shape.channels);
    for_each_element(shape, [&](std::size_t i, std::size_t c) {
      expected_sums[c].gradients += gradients[i];
      expected_sums[c].products += gradients[i] * (static_cast<double>(values[i]) - centre[c]);
    });
    for (std::size_t c = 0; c < shape.channels; ++c) {
      EXPECT_NEAR(sums[c].gradients, expected_sums[c].gradients, 100 * epsilon * (n + 1));
      EXPECT_NEAR(sums[c].products, expected_sums[c].products, 100 * epsilon * (n + 1));
    }

    const auto one = wave<T>(shape.channels, 1, 0.3);
    const auto two = wave<T>(shape.channels, 2, 0.5);
    const auto three = wave<T>(shape.channels, 3, 0.7);
    std::vector<T> result(size + 1, T(7));  // one more: nothing is written behind the end
    normalize(values.data(), shape, NormalizeFactors<T>{centre.data(), one.data(), two.data()},
              result.data());
    for_each_element(shape, [&](std::size_t i, std::size_t c) {
      const T centred = values[i] - centre[c];
      const T scaled = centred * one[c];
      ASSERT_EQ(result[i], scaled + two[c]) << i;
    });
    input_gradient(GradientMemory<T>{values.data(), gradients.data()}, shape,
                   GradientFactors<T>{centre.data(), one.data(), two.data(), three.data()},
                   result.data());
    for_each_element(shape, [&](std::size_t i, std::size_t c) {
      const T centred = values[i] - centre[c];
      const T of_value = centred * two[c];
      const T of_gradient = gradients[i] * one[c];
      const T both = of_gradient + of_value;
      ASSERT_EQ(result[i], both + three[c]) << i;
    });
    EXPECT_EQ(result[size], T(7));
  }
}

TEST(BatchNormPasses, OfEveryInstructionSet) {
  for (const std::int64_t target : available_targets()) {
    const OnTarget on(target);
    SCOPED_TRACE(hwy::TargetName(target));
    expect_passes<float>();
    expect_passes<double>();
  }
}

// Values far from zero, and groups far from each other: what cancels is small beside the result.
TEST(BatchNormPasses, VariancesKeepTheirDigits) {
  for (const double step : {0.0, 1000.0}) {
    const ChannelShape shape{50, 2, 300};
    auto values = wave<float>(size_of(shape), 0, 0.37);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = 10'000 + static_cast<float>(i / 3000 % 2 * step) + values[i] / 4;
    }
    std::vector<Moments> moments(2);
    channel_moments(values.data(), shape, moments.data());
    const std::vector<Moments> expected = moments_slowly(values, shape);
    for (std::size_t c = 0; c < 2; ++c) {
      EXPECT_NEAR(moments[c].mean, expected[c].mean, 1e-3);
      EXPECT_NEAR(moments[c].squares / expected[c].squares, 1, 1e-5);
    }
  }
}

TEST(BatchNormPasses, NotANumberStaysOne) {
  for (const ChannelShape& shape : {ChannelShape{4, 2, 9}, ChannelShape{36, 2, 1}}) {
    auto values = wave<float>(size_of(shape), 0, 0.37);
    values[0] = std::numeric_limits<float>::quiet_NaN();
    std::vector<Moments> moments(2);
    channel_moments(values.data(), shape, moments.data());
    EXPECT_TRUE(std::isnan(moments[0].mean));
    EXPECT_TRUE(std::isnan(moments[0].squares));
    EXPECT_FALSE(std::isnan(moments[1].squares));
  }
}

TEST(MomentsTest, OfNothingAddNothing) {
  Moments moments{3, 2, 1};
  moments.add({});
  EXPECT_EQ(moments.mean, 2);
  Moments empty;
  empty.add(moments);
  EXPECT_EQ(empty.count, 3);
  EXPECT_EQ(empty.mean, 2);
  EXPECT_EQ(empty.squares, 1);
  empty.add({1, 6, 0});  // 4 away from 3 values
  EXPECT_EQ(empty.mean, 3);
  EXPECT_EQ(empty.squares, 1 + 16 * 3 / 4.0);
}

}  // namespace
}  // namespace lockstep::kernel
