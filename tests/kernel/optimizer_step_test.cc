// Steps of optimizers: the vector code of every instruction set against plain loops.
#include "kernel/optimizer_step.h"

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

/// Waves between -1 and 1.
template <class T>
std::vector<T> wave(std::size_t count, double frequency) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<T>(std::sin(static_cast<double>(i + 1) * frequency));
  }
  return values;
}

template <class T>
std::vector<T> squares(std::vector<T> values) {
  for (T& value : values) value *= value;
  return values;
}

/// What an optimizer reads and writes.
template <class T>
struct State {
  explicit State(std::size_t count)
      : parameter(wave<T>(count, 0.37)),
        first(wave<T>(count, 0.73)),
        second(squares(wave<T>(count, 0.91))),
        third(squares(wave<T>(count, 1.17))),
        gradient(wave<T>(count, 1.91)) {}
  bool operator==(const State&) const = default;

  [[nodiscard]] SgdMemory<T> memory_of(const Sgd& sgd, std::size_t count) {
    return {.parameter = parameter.data(),
            .velocity = sgd.momentum != 0 ? first.data() : nullptr,
            .gradient = gradient.data(),
            .count = count};
  }
  [[nodiscard]] AdamMemory<T> memory_of(bool amsgrad, std::size_t count) {
    return {.parameter = parameter.data(),
            .mean = first.data(),
            .square = second.data(),
            .largest = amsgrad ? third.data() : nullptr,
            .gradient = gradient.data(),
            .count = count};
  }

  std::vector<T> parameter;
  std::vector<T> first;
  std::vector<T> second;
  std::vector<T> third;
  std::vector<T> gradient;
};

template <class T>
void step_slowly(const Sgd& sgd, const SgdMemory<T>& memory, Rounding rounding) {
  const auto momentum = static_cast<T>(sgd.momentum);
  for (std::size_t i = 0; i < memory.count; ++i) {
    T& parameter = memory.parameter[i];
    T step =
        multiply_add(parameter, static_cast<T>(sgd.weight_decay), memory.gradient[i], rounding);
    if (sgd.momentum != 0) {
      T& velocity = memory.velocity[i];
      const T kept = velocity * momentum;
      velocity = multiply_add(step, static_cast<T>(1 - sgd.dampening), kept, rounding);
      step = sgd.nesterov ? multiply_add(velocity, momentum, step, rounding) : velocity;
    }
    parameter = multiply_add(step, static_cast<T>(-sgd.rate), parameter, rounding);
  }
}

template <class T>
void step_slowly(const Adam& adam, const AdamMemory<T>& memory, Rounding rounding) {
  const auto number = [](double value) { return static_cast<T>(value); };
  for (std::size_t i = 0; i < memory.count; ++i) {
    T& parameter = memory.parameter[i];
    parameter *= number(adam.shrink);
    const T step = multiply_add(parameter, number(adam.weight_decay), memory.gradient[i], rounding);
    T& mean = memory.mean[i];
    const T kept_mean = mean * number(adam.beta1);
    mean = multiply_add(step, number(1 - adam.beta1), kept_mean, rounding);
    T& square = memory.square[i];
    const T kept_square = square * number(adam.beta2);
    const T share = step * number(1 - adam.beta2);
    square = multiply_add(share, step, kept_square, rounding);
    T used = square;
    if (memory.largest != nullptr) {
      used = memory.largest[i] = std::max(memory.largest[i], square);
    }
    const T width = std::sqrt(used) / number(adam.correction) + number(adam.epsilon);
    const T change = mean * number(-adam.rate);
    parameter += change / width;
  }
}

constexpr std::size_t kRoom = 70;

/// Steps of any length, and what lies behind is left alone. `memory_of` names a state's memory.
template <class T, class How, class MemoryOf>
void expect_matches(const How& how, const MemoryOf& memory_of) {
  for (std::size_t count = 0; count < kRoom; ++count) {
    State<T> once(kRoom);
    step_slowly(how, memory_of(once, count), Rounding::once);
    State<T> twice(kRoom);
    step_slowly(how, memory_of(twice, count), Rounding::twice);
    for (const std::int64_t target : available_targets()) {
      const OnTarget on(target);
      State<T> actual(kRoom);
      step(how, memory_of(actual, count));
      EXPECT_TRUE(actual == once || actual == twice)
          << count << " elements on " << hwy::TargetName(target);
    }
  }
}

TEST(OptimizerStep, OfSgdMatchesPlainLoopsOnEveryTarget) {
  const Sgd kinds[] = {{.rate = 0.1},
                       {.rate = 0.1, .weight_decay = 0.01},
                       {.rate = 0.1, .momentum = 0.9},
                       {.rate = 0.1, .weight_decay = 0.01, .momentum = 0.9, .dampening = 0.3},
                       {.rate = 0.1, .weight_decay = 0.01, .momentum = 0.9, .nesterov = true}};
  for (const Sgd& sgd : kinds) {
    const auto memory_of = [&](auto& state, std::size_t count) {
      return state.memory_of(sgd, count);
    };
    expect_matches<float>(sgd, memory_of);
    expect_matches<double>(sgd, memory_of);
  }
}

TEST(OptimizerStep, OfAdamMatchesPlainLoopsOnEveryTarget) {
  const Adam usual{.rate = 0.1, .beta1 = 0.9, .beta2 = 0.999, .correction = 0.7, .epsilon = 1e-8};
  Adam decayed = usual;
  decayed.weight_decay = 0.01;
  Adam shrunk = usual;
  shrunk.shrink = 0.99;
  for (const Adam& adam : {usual, decayed, shrunk}) {
    for (const bool amsgrad : {false, true}) {
      const auto memory_of = [&](auto& state, std::size_t count) {
        return state.memory_of(amsgrad, count);
      };
      expect_matches<float>(adam, memory_of);
      expect_matches<double>(adam, memory_of);
    }
  }
}

}  // namespace
}  // namespace lockstep::kernel
