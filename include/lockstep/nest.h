// Nests: values made of values. std::vector, array, pair, tuple, map, unordered_map, optional, and
// your own structs once they name their members:
//
//   struct Losses {
//     Tensor image, text;
//     static auto lockstep_members() { return std::tuple(&Losses::image, &Losses::text); }
//   };
//
// What goes through nests element by element is stated where it is used: run() and merge_call()
// take containers apart, so that a vector of tensors from every replica is a vector of PerReplica
// tensors. A struct stays whole (PerReplica<Losses>; field() reads a member); reductions go through
// its tensors.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/value.h"

namespace lockstep {

/// A struct that names its members.
template <class T>
concept MemberNest = requires {
  std::tuple_size<decltype(T::lockstep_members())>::value;
};

namespace detail {

template <class T>
inline constexpr bool is_sequence = false;
template <class T, class A>
inline constexpr bool is_sequence<std::vector<T, A>> = true;
template <class T, std::size_t n>
inline constexpr bool is_sequence<std::array<T, n>> = true;

template <class T>
inline constexpr bool is_mapping = false;
template <class K, class T, class C, class A>
inline constexpr bool is_mapping<std::map<K, T, C, A>> = true;
template <class K, class T, class H, class E, class A>
inline constexpr bool is_mapping<std::unordered_map<K, T, H, E, A>> = true;

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

template <class T>
inline constexpr bool is_tuple = false;
template <class... Ts>
inline constexpr bool is_tuple<std::tuple<Ts...>> = true;
template <class A, class B>
inline constexpr bool is_tuple<std::pair<A, B>> = true;

template <class T>
inline constexpr bool kIsANest = false;

/// Calls fn(leaf) for every tensor of a nest, in order; leaves are mutable if the nest is.
template <class N, class F>
void for_each_tensor(N& nest, F&& fn) {
  using T = std::remove_const_t<N>;
  if constexpr (std::is_base_of_v<Tensor, T>) {
    fn(nest);
  } else if constexpr (is_sequence<T> || is_mapping<T>) {
    if constexpr (is_mapping<T>) {
      for (auto& [key, item] : nest) for_each_tensor(item, fn);
    } else {
      for (auto& item : nest) for_each_tensor(item, fn);
    }
  } else if constexpr (is_optional<T>) {
    if (nest.has_value()) for_each_tensor(*nest, fn);
  } else if constexpr (is_tuple<T>) {
    std::apply([&](auto&... items) { (for_each_tensor(items, fn), ...); }, nest);
  } else if constexpr (MemberNest<T>) {
    std::apply([&](auto... members) { (for_each_tensor(nest.*members, fn), ...); },
               T::lockstep_members());
  } else {
    static_assert(kIsANest<T>,
                  "lockstep: a value of this type is no nest of tensors (the type stands in "
                  "kIsANest<...>). Numbers and texts cannot be combined here; a struct can once it "
                  "names its members: static auto lockstep_members() { return "
                  "std::tuple(&Losses::image, &Losses::text); }");
  }
}

template <class N>
std::vector<Tensor> tensors_of(const N& nest) {
  std::vector<Tensor> tensors;
  for_each_tensor(nest, [&](const Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

/// A copy of `like` with its tensors replaced, in order.
template <class N>
N with_tensors(N like, const std::vector<Tensor>& tensors) {
  std::size_t next = 0;
  for_each_tensor(like, [&](Tensor& tensor) { tensor = tensors[next++]; });
  return like;
}

}  // namespace detail

/// One member of a distributed struct: field(batch, &Batch::labels).
template <class T, class L, class M>
Distributed<M, L> field(const Distributed<T, L>& value, M T::*member) {
  std::vector<M> parts;
  for (int i = 0; i < value.size(); ++i) parts.push_back(value[i].*member);
  return {std::move(parts), value.shared_devices()};
}

}  // namespace lockstep
