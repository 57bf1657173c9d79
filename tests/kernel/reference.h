// The reduction as a reader would write it: one element at a time, following the merges. What the
// vector code is compared with, bit for bit.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "kernel/reduce.h"
#include "kernel/round.h"

namespace lockstep::kernel::reference {

template <class T>
struct Accumulator {
  using Type = T;
};
template <>
struct Accumulator<Float16> {
  using Type = float;
};
template <>
struct Accumulator<BFloat16> {
  using Type = float;
};
template <>
struct Accumulator<bool> {
  using Type = std::uint8_t;
};
template <class T>
using Acc = typename Accumulator<T>::Type;

template <class T>
Acc<T> widen(T value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return to_float(value);
  } else {
    return static_cast<Acc<T>>(value);
  }
}

template <class T>
T narrow(Acc<T> value) {
  if constexpr (std::is_same_v<T, Float16>) {
    return to_float16(value);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return to_bfloat16(value);
  } else {
    return static_cast<T>(value);
  }
}

template <class A>
A combine(Op op, A a, A b) {
  if constexpr (std::is_floating_point_v<A>) {
    switch (op) {
      case Op::sum:
      case Op::mean:
        return a + b;
      case Op::product:
        return a * b;
      case Op::min:
        return a < b || std::isnan(a) ? a : b;
      case Op::max:
        return a > b || std::isnan(a) ? a : b;
    }
  } else if constexpr (std::is_integral_v<A>) {
    switch (op) {
      case Op::sum:
      case Op::mean:
        return static_cast<A>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
      case Op::product:
        return static_cast<A>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
      case Op::min:
        return a < b ? a : b;
      case Op::max:
        return a > b ? a : b;
    }
  } else {  // complex: sum and mean
    return {a.real() + b.real(), a.imag() + b.imag()};
  }
  return a;
}

template <class A>
A weigh(A value, double weight) {
  if constexpr (std::is_floating_point_v<A>) {
    return value * static_cast<A>(weight);
  } else if constexpr (std::is_integral_v<A>) {
    return value;
  } else {
    const auto w = static_cast<typename A::value_type>(weight);
    return {value.real() * w, value.imag() * w};
  }
}

template <class A>
A canonical(A value) {
  return std::isnan(value) ? std::numeric_limits<A>::quiet_NaN() : value;
}

template <class A>
A finish(Op op, A value, double divisor) {
  if constexpr (std::is_floating_point_v<A>) {
    if (op == Op::min || op == Op::max) return value;
    return canonical(divisor == 1 ? value : value / static_cast<A>(divisor));
  } else if constexpr (std::is_integral_v<A>) {
    return value;
  } else {
    return {finish(op, value.real(), divisor), finish(op, value.imag(), divisor)};
  }
}

template <class T>
T read(const void* base, std::size_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + i * sizeof(T), sizeof(T));
  return value;
}

/// The result before it is stored.
template <class T>
std::vector<Acc<T>> reduce(const Reduction& r) {
  std::vector<Acc<T>> results;
  for (std::size_t e = 0; e < r.count; ++e) {
    std::vector<Acc<T>> stack;
    for (std::size_t i = 0; i < r.inputs.size(); ++i) {
      Acc<T> value = r.inputs[i].form == Form::value ? widen(read<T>(r.inputs[i].data, e))
                                                     : read<Acc<T>>(r.inputs[i].data, e);
      if (!r.weights.empty()) value = weigh(value, r.weights[i]);
      stack.push_back(value);
      for (int m = 0; m < r.merges[i]; ++m) {
        const Acc<T> upper = stack.back();
        stack.pop_back();
        stack.back() = combine(r.op, stack.back(), upper);
      }
    }
    results.push_back(finish(r.op, stack.back(), r.divisor));
  }
  return results;
}

}  // namespace lockstep::kernel::reference
