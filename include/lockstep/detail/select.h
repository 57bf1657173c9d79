// How a value is handed to one replica, to one copy of a variable, or back to a replica after a
// merge. Each is an overload set over the argument's type; what must not be handed over is refused
// by a static_assert that says what to do instead.
#pragma once

#include <tuple>
#include <utility>

#include "lockstep/detail/regroup.h"
#include "lockstep/detail/tensors_in.h"

namespace lockstep::detail {

/// Handed over as themselves: their own methods know the context they are called in.
template <class T>
inline constexpr bool is_handle = std::is_same_v<T, Variable> || std::is_same_v<T, NonSlotVariable>;

/// Handles with a copy for each replica: select_replica(i) gives the replica its own.
template <class T>
concept PerReplicaHandle = requires(const T& handle) {
  handle.select_replica(0);
};

/// Whether a type has something distributed inside, so that it must be taken apart.
template <class T>
struct HasDistributed
    : std::bool_constant<is_distributed<T> || is_handle<T> || PerReplicaHandle<T>> {};
template <class T, class A>
struct HasDistributed<std::vector<T, A>> : HasDistributed<T> {};
template <class T, std::size_t n>
struct HasDistributed<std::array<T, n>> : HasDistributed<T> {};
template <class T>
struct HasDistributed<std::optional<T>> : HasDistributed<T> {};
template <class... Ts>
struct HasDistributed<std::tuple<Ts...>> : std::disjunction<HasDistributed<Ts>...> {};
template <class A, class B>
struct HasDistributed<std::pair<A, B>> : std::disjunction<HasDistributed<A>, HasDistributed<B>> {};
template <class K, class T, class C, class A>
struct HasDistributed<std::map<K, T, C, A>> : HasDistributed<T> {};
template <class K, class T, class H, class E, class A>
struct HasDistributed<std::unordered_map<K, T, H, E, A>> : HasDistributed<T> {};

/// Rebuilds a container with pick(leaf) in place of every leaf.
template <class T, class Pick>
decltype(auto) select_through(const T& value, const Pick& pick) {
  const auto inner = [&](const auto& item) -> decltype(auto) { return select_through(item, pick); };
  if constexpr (!HasDistributed<T>::value || is_distributed<T> || is_handle<T> ||
                PerReplicaHandle<T>) {
    return pick(value);
  } else if constexpr (is_optional<T>) {
    using Item = std::remove_cvref_t<decltype(inner(*value))>;
    return value ? std::optional<Item>(inner(*value)) : std::nullopt;
  } else if constexpr (is_tuple<T>) {
    return std::apply(
        [&](const auto&... items) {
          return std::tuple<std::remove_cvref_t<decltype(inner(items))>...>(inner(items)...);
        },
        value);
  } else if constexpr (is_mapping<T>) {
    using Item = std::remove_cvref_t<decltype(inner(value.begin()->second))>;
    std::map<typename T::key_type, Item> result;
    for (const auto& [key, item] : value) result.emplace(key, inner(item));
    return result;
  } else {
    using Item = std::remove_cvref_t<decltype(inner(*value.begin()))>;
    std::vector<Item> result;
    for (const auto& item : value) result.push_back(inner(item));
    return result;
  }
}

/// What a step function sees of an argument of run().
template <class T>
decltype(auto) select_for_run(const T& value, int replica) {
  return select_through(value, [replica](const auto& leaf) -> decltype(auto) {
    using Leaf = std::remove_cvref_t<decltype(leaf)>;
    if constexpr (is_distributed<Leaf>) {
      using L = typename Leaf::locality_type;
      static_assert(!std::is_same_v<L, locality::Colocated>,
                    "lockstep: run() takes no Colocated value: it lives with a variable, not with "
                    "the replicas; pass it to update(), or fetch() it");
      static_assert(!std::is_same_v<L, locality::NonSlot>,
                    "lockstep: run() takes no NonSlot value: it lives on the non-slot devices; "
                    "pass it to update_non_slot(), or fetch() it");
      if constexpr (std::is_same_v<L, locality::Mirrored>) {
        return Agreed<typename Leaf::value_type>(leaf[replica]);
      } else {
        return (leaf[replica]);
      }
    } else if constexpr (PerReplicaHandle<Leaf>) {
      return leaf.select_replica(replica);
    } else {
      return (leaf);
    }
  });
}

/// True if only `holders` handles of this tensor can reach its memory.
bool is_sole_owner(const Tensor& tensor, std::size_t holders);

/// Gives every tensor of a merge function's plain result memory of its own, so that a replica that
/// writes to it in place changes no other replica's. Handles of variables stay what they are.
/// `holders`: how many handles the caller has of each tensor.
template <class N>
void make_own(N& nest, std::size_t holders) {
  for_each_tensor_in(nest, [&](Tensor& tensor) {
    if (tensor.defined() && !is_sole_owner(tensor, holders)) tensor = tensor.clone();
  });
}

/// A replica's own tensors of a result that is the same for all. Replica 0 takes the memory itself
/// if there is no other handle of it; the other replicas get copies.
template <class T>
Agreed<T> agreed_copy(T value, int replica) {
  // Replica 0's: the result of the merge function, and this copy of it.
  make_own(value, replica == 0 ? 2 : 0);
  return Agreed<T>(std::move(value));
}

/// What a replica gets back from merge_call(): its own component of a per-replica result, an
/// agreed value of everything that is the same for all.
template <class T>
auto select_from_merge(const T& value, int replica) {
  return select_through(value, [replica](const auto& leaf) {
    using Leaf = std::remove_cvref_t<decltype(leaf)>;
    if constexpr (is_distributed<Leaf>) {
      using Value = typename Leaf::value_type;
      if constexpr (std::is_same_v<typename Leaf::locality_type, locality::PerReplica>) {
        return Value(leaf[replica]);
      } else {
        return leaf.size() > replica ? Agreed<Value>(leaf[replica]) : agreed_copy(leaf[0], replica);
      }
    } else if constexpr (is_handle<Leaf> || PerReplicaHandle<Leaf> || is_agreed<Leaf>) {
      return leaf;
    } else {
      return agreed_copy(leaf, replica);
    }
  });
}

/// Which copy of which variable an update works on.
struct UpdateTarget {
  int index;
  Device device;
};
/// InvalidUsage: an argument of update() has no component on the variable's device.
[[noreturn]] void not_on_device(const char* locality, const Device& device,
                                const DeviceList& devices);

/// What the function given to update() sees of an argument.
template <class L, class T>
decltype(auto) select_for_update(const T& value, const UpdateTarget& target) {
  return select_through(value, [&target](const auto& leaf) -> decltype(auto) {
    using Leaf = std::remove_cvref_t<decltype(leaf)>;
    if constexpr (is_distributed<Leaf>) {
      using Its = typename Leaf::locality_type;
      static_assert(!std::is_same_v<Its, locality::PerReplica>,
                    "lockstep: update() takes no PerReplica value: the copies would differ; "
                    "reduce it first: reduce_to(op, value, variable)");
      static_assert(!std::is_same_v<Its, locality::NonSlot> || std::is_same_v<L, locality::NonSlot>,
                    "lockstep: update() takes no NonSlot value: it lives on the non-slot devices; "
                    "pass it to update_non_slot()");
      static_assert(
          !std::is_same_v<Its, locality::Colocated> || std::is_same_v<L, locality::Colocated>,
          "lockstep: update_non_slot() takes no Colocated value: it lives with a variable");
      for (int i = 0; i < leaf.size(); ++i) {
        if (leaf.devices()[static_cast<std::size_t>(i)] == target.device) return (leaf[i]);
      }
      not_on_device(Its::name, target.device, leaf.devices());
    } else if constexpr (std::is_same_v<Leaf, NonSlotVariable>) {
      // Names Leaf, or clang would check it before the branch is chosen.
      static_assert(std::is_same_v<L, locality::NonSlot> || !std::is_same_v<Leaf, NonSlotVariable>,
                    "lockstep: update() takes no NonSlotVariable: it lives on the non-slot "
                    "devices; use it in update_non_slot()");
      return leaf.variable().component_on(target.device);
    } else if constexpr (std::is_same_v<Leaf, Variable>) {
      return leaf.component_on(target.device);
    } else {
      return (leaf);
    }
  });
}

}  // namespace lockstep::detail
