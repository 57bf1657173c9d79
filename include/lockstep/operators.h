// Arithmetic on variables and mirrored values: each operand is read as in its context, the result
// is a plain tensor. v + 1, 2 * v, v < w, v == 7, v & 3, v << 1, -v, ...
#pragma once

#include "lockstep/variable.h"
// libtorch's own headers come after ours, which begin with the one that must be first.
#include <ATen/ScalarOps.h>
#include <ATen/TensorOperators.h>

#include <type_traits>

namespace lockstep {

namespace detail {

template <class T>
inline constexpr bool reads_as_tensor =
    std::is_same_v<T, Variable> || std::is_same_v<T, NonSlotVariable> ||
    std::is_same_v<T, Mirrored<Tensor>>;

template <class A, class B>
concept TensorOperands = (reads_as_tensor<A> &&
                          (reads_as_tensor<B> || std::is_convertible_v<const B&, at::Scalar> ||
                           std::is_base_of_v<Tensor, B>)) ||
                         (reads_as_tensor<B> && (std::is_convertible_v<const A&, at::Scalar> ||
                                                 std::is_base_of_v<Tensor, A>));

/// A number becomes a tensor that gives way to the other operand's dtype: 1 / v of an integer v is
/// floating, 2 * v is not.
template <class T>
Tensor operand(const T& value) {
  if constexpr (reads_as_tensor<T> || std::is_base_of_v<Tensor, T>) {
    return value;
  } else {
    return at::native::wrapped_scalar_tensor(at::Scalar(value));
  }
}

}  // namespace detail

template <class A, class B>
requires detail::TensorOperands<A, B> Tensor operator+(const A& a, const B& b) {
  return detail::operand(a) + detail::operand(b);
}
template <class A, class B>
requires detail::TensorOperands<A, B> Tensor operator-(const A& a, const B& b) {
  return detail::operand(a) - detail::operand(b);
}
template <class A, class B>
requires detail::TensorOperands<A, B> Tensor operator*(const A& a, const B& b) {
  return detail::operand(a) * detail::operand(b);
}
template <class A, class B>
requires detail::TensorOperands<A, B> Tensor operator/(const A& a, const B& b) {
  return detail::operand(a) / detail::operand(b);
}
template <class A, class B>
requires detail::TensorOperands<A, B> Tensor operator%(const A& a, const B& b) {
  return detail::operand(a) % detail::operand(b);
}
template <class A, class B>
requires detail::TensorOperands<A, B> Tensor operator<(const A& a, const B& b) {
  return detail::operand(a) < detail::operand(b);
}
template <class A, class B>
requires detail::TensorOperands<A, B> Tensor operator<=(const A& a, const B& b) {
  return detail::operand(a) <= detail::operand(b);
}
template <class A, class B>
requires detail::TensorOperands<A, B> Tensor operator>(const A& a, const B& b) {
  return detail::operand(a) > detail::operand(b);
}
template <class A, class B>
requires detail::TensorOperands<A, B> Tensor operator>=(const A& a, const B& b) {
  return detail::operand(a) >= detail::operand(b);
}
template <class A, class B>
requires detail::TensorOperands<A, B> Tensor operator==(const A& a, const B& b) {
  return detail::operand(a) == detail::operand(b);
}
template <class A, class B>
requires detail::TensorOperands<A, B> Tensor operator!=(const A& a, const B& b) {
  return detail::operand(a) != detail::operand(b);
}
template <class A, class B>
requires detail::TensorOperands<A, B> Tensor operator&(const A& a, const B& b) {
  return detail::operand(a) & detail::operand(b);
}
template <class A, class B>
requires detail::TensorOperands<A, B> Tensor operator|(const A& a, const B& b) {
  return detail::operand(a) | detail::operand(b);
}
template <class A, class B>
requires detail::TensorOperands<A, B> Tensor operator^(const A& a, const B& b) {
  return detail::operand(a) ^ detail::operand(b);
}

template <class A, class B>
requires detail::TensorOperands<A, B> Tensor operator<<(const A& a, const B& b) {
  return detail::operand(a).bitwise_left_shift(detail::operand(b));
}
template <class A, class B>
requires detail::TensorOperands<A, B> Tensor operator>>(const A& a, const B& b) {
  return detail::operand(a).bitwise_right_shift(detail::operand(b));
}

template <class A>
requires detail::reads_as_tensor<A> Tensor operator-(const A& a) { return -detail::operand(a); }
template <class A>
requires detail::reads_as_tensor<A> Tensor operator~(const A& a) { return ~detail::operand(a); }

template <class A>
requires detail::reads_as_tensor<A> Tensor abs(const A& a) { return detail::operand(a).abs(); }
template <class A, class B>
requires detail::TensorOperands<A, B> Tensor pow(const A& a, const B& b) {
  return detail::operand(a).pow(detail::operand(b));
}
template <class A, class B>
requires detail::TensorOperands<A, B> Tensor matmul(const A& a, const B& b) {
  return detail::operand(a).matmul(detail::operand(b));
}
template <class A, class B>
requires detail::TensorOperands<A, B> Tensor floor_divide(const A& a, const B& b) {
  return detail::operand(a).floor_divide(detail::operand(b));
}

}  // namespace lockstep
