// A step of gradient descent: the vector code of every instruction set against plain loops.
#include "kernel/descent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/kernel/targets.h"

namespace lockstep::kernel {
namespace {

/// Both are right: a target multiplies and adds in one rounding, or in two.
enum class Rounding { once, twice };

template <class T>
T multiply_add(T a, T b, T c, Rounding rounding) {
  if (rounding == Rounding::once) return std::fma(a, b, c);
  const T product = a * b;
  return product + c;
}

template <class T>
struct State {
  std::vector<T> parameter;
  std::vector<T> velocity;
  std::vector<T> gradient;

  explicit State(std::size_t count) : parameter(count), velocity(count), gradient(count) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto x = static_cast<double>(i);
      parameter[i] = static_cast<T>(std::sin(x * 0.37));
      velocity[i] = static_cast<T>(std::sin(x * 0.73));
      gradient[i] = static_cast<T>(std::cos(x * 1.91));
    }
  }
};

template <class T>
void descend_slowly(const Descent& descent, State<T>& state, Rounding rounding) {
  const auto momentum = static_cast<T>(descent.momentum);
  for (std::size_t i = 0; i < state.parameter.size(); ++i) {
    T& parameter = state.parameter[i];
    T& velocity = state.velocity[i];
    T step = state.gradient[i];
    if (descent.weight_decay != 0) {
      step = multiply_add(parameter, static_cast<T>(descent.weight_decay), step, rounding);
    }
    if (descent.momentum != 0) {
      const T kept = velocity * momentum;
      velocity = multiply_add(step, static_cast<T>(1 - descent.dampening), kept, rounding);
      step = descent.nesterov ? multiply_add(velocity, momentum, step, rounding) : velocity;
    }
    parameter = multiply_add(step, static_cast<T>(-descent.rate), parameter, rounding);
  }
}

template <class T>
void expect_matches(const Descent& descent, std::size_t count) {
  State<T> once(count);
  descend_slowly(descent, once, Rounding::once);
  State<T> twice(count);
  descend_slowly(descent, twice, Rounding::twice);
  for (const std::int64_t target : available_targets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const OnTarget on(target);
    State<T> actual(count);
    T* const velocity = descent.momentum != 0 ? actual.velocity.data() : nullptr;
    descend(descent, actual.parameter.data(), velocity, actual.gradient.data(), count);
    const bool is_once = actual.parameter == once.parameter && actual.velocity == once.velocity;
    const bool is_twice = actual.parameter == twice.parameter && actual.velocity == twice.velocity;
    EXPECT_TRUE(is_once || is_twice) << count << " elements";
  }
}

TEST(Descent, IsTheSameOnEveryTarget) {
  const Descent kinds[] = {{.rate = 0.1},
                           {.rate = 0.1, .weight_decay = 0.01},
                           {.rate = 0.1, .momentum = 0.9},
                           {.rate = 0.1, .weight_decay = 0.01, .momentum = 0.9, .dampening = 0.3},
                           {.rate = 0.1, .weight_decay = 0.01, .momentum = 0.9, .nesterov = true}};
  for (const Descent& descent : kinds) {
    for (std::size_t count = 0; count < 70; ++count) {
      expect_matches<float>(descent, count);
      expect_matches<double>(descent, count);
    }
  }
}

TEST(Descent, LeavesWhatLiesBehindAlone) {
  constexpr std::size_t kRoom = 64;
  for (const std::int64_t target : available_targets()) {
    const OnTarget on(target);
    for (std::size_t count = 0; count < kRoom; ++count) {
      State<float> state(kRoom);
      const State<float> before(kRoom);
      descend({.rate = 0.1, .momentum = 0.9}, state.parameter.data(), state.velocity.data(),
              state.gradient.data(), count);
      for (std::size_t i = count; i < kRoom; ++i) {
        ASSERT_EQ(state.parameter[i], before.parameter[i]) << count << ", " << i;
        ASSERT_EQ(state.velocity[i], before.velocity[i]) << count << ", " << i;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::kernel
