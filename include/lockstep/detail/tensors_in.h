// The tensors inside of a value that may hold other things, too: texts, numbers, handles.
#pragma once

#include "lockstep/nest.h"

namespace lockstep::detail {

/// Calls fn(tensor) for every Tensor of a value of containers, tuples and structs that name their
/// members (lockstep_members). Passes over everything else; what a handle of a variable holds is
/// not the value's, and what another struct holds is not known.
template <class N, class F>
void for_each_tensor_in(N& value, const F& fn) {
  using T = std::remove_cvref_t<N>;
  if constexpr (std::is_same_v<N, Tensor>) {
    fn(value);
  } else if constexpr (is_mapping<T>) {
    for (auto& [key, item] : value) for_each_tensor_in(item, fn);
  } else if constexpr (is_sequence<T>) {
    for (auto&& item : value) for_each_tensor_in(item, fn);
  } else if constexpr (is_optional<T>) {
    if (value.has_value()) for_each_tensor_in(*value, fn);
  } else if constexpr (is_tuple<T>) {
    std::apply([&](auto&... items) { (for_each_tensor_in(items, fn), ...); }, value);
  } else if constexpr (MemberNest<T>) {
    std::apply([&](auto... members) { (for_each_tensor_in(value.*members, fn), ...); },
               T::lockstep_members());
  }
}

}  // namespace lockstep::detail
