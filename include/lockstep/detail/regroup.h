// How what each replica returned becomes one value (regroup), and how a value is handed to each
// replica (select). Containers go element by element, so the shape of the result is known to the
// compiler; whether the replicas agree on lengths and keys is checked when they meet.
//
//   replica returns         regrouped
//   T                       PerReplica<T> (Colocated<T>, NonSlot<T> after an update)
//   Agreed<T>               Mirrored<T>
//   vector, array, map, unordered_map, optional, tuple, pair of those: the same container
//   a handle (Variable, a component of one)   that handle; all replicas must return the same
#pragma once

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/nest.h"
#include "lockstep/variable.h"

namespace lockstep::detail {

using SharedDevices = std::shared_ptr<const DeviceList>;

/// InvalidUsage: the replicas returned (passed) nests of different shape.
[[noreturn]] void nests_differ(const std::string& what, int replica);

template <class T, class L>
struct Regroup {
  using type = Distributed<T, L>;
  static type from(std::vector<T> each, const SharedDevices& devices) {
    return {std::move(each), devices};
  }
};

template <class T, class L>
using Regrouped = typename Regroup<T, L>::type;

/// Takes part `get(item)` out of each replica's item.
template <class L, class T, class Get>
auto regroup_part(std::vector<T>& each, const SharedDevices& devices, Get get) {
  using Part = std::remove_cvref_t<decltype(get(each.front()))>;
  std::vector<Part> parts;
  parts.reserve(each.size());
  for (auto&& item : each) parts.push_back(std::move(get(item)));
  return Regroup<Part, L>::from(std::move(parts), devices);
}

template <class T, class L>
struct Regroup<Agreed<T>, L> {
  using type = Mirrored<T>;
  static type from(std::vector<Agreed<T>> each, const SharedDevices& devices) {
    std::vector<T> values;
    for (const Agreed<T>& item : each) values.push_back(static_cast<const T&>(item));
    return {std::move(values), devices};
  }
};

template <class L>
struct Regroup<Variable, L> {
  using type = Variable;
  static type from(std::vector<Variable> each, const SharedDevices&) {
    for (std::size_t i = 1; i < each.size(); ++i) {
      if (!each[i].same_as(each[0])) nests_differ("another variable", static_cast<int>(i));
    }
    return each[0];
  }
};

template <class L>
struct Regroup<Component, L> {
  using type = Variable;
  static type from(const std::vector<Component>& each, const SharedDevices& devices) {
    std::vector<Variable> owners;
    for (const Component& item : each) owners.push_back(item.variable());
    return Regroup<Variable, L>::from(std::move(owners), devices);
  }
};

template <class T, class A, class L>
struct Regroup<std::vector<T, A>, L> {
  using type = std::vector<Regrouped<T, L>>;
  static type from(std::vector<std::vector<T, A>> each, const SharedDevices& devices) {
    for (std::size_t i = 1; i < each.size(); ++i) {
      if (each[i].size() != each[0].size()) {
        nests_differ("a sequence of " + std::to_string(each[i].size()) + " instead of " +
                         std::to_string(each[0].size()) + " elements",
                     static_cast<int>(i));
      }
    }
    type result;
    for (std::size_t k = 0; k < each[0].size(); ++k) {
      // Through a copy: the elements of std::vector<bool> have no address.
      std::vector<T> parts;
      for (auto& item : each) parts.push_back(std::move(item[k]));
      result.push_back(Regroup<T, L>::from(std::move(parts), devices));
    }
    return result;
  }
};

template <class T, std::size_t n, class L>
struct Regroup<std::array<T, n>, L> {
  using type = std::array<Regrouped<T, L>, n>;
  static type from(std::vector<std::array<T, n>> each, const SharedDevices& devices) {
    return [&]<std::size_t... k>(std::index_sequence<k...>) {
      return type{regroup_part<L>(each, devices, [](auto& item) -> T& { return item[k]; })...};
    }
    (std::make_index_sequence<n>());
  }
};

template <class... Ts, class L>
struct Regroup<std::tuple<Ts...>, L> {
  using type = std::tuple<Regrouped<Ts, L>...>;
  static type from(std::vector<std::tuple<Ts...>> each, const SharedDevices& devices) {
    return [&]<std::size_t... k>(std::index_sequence<k...>) {
      return type(
          regroup_part<L>(each, devices, [](auto& item) -> Ts& { return std::get<k>(item); })...);
    }
    (std::index_sequence_for<Ts...>());
  }
};

template <class A, class B, class L>
struct Regroup<std::pair<A, B>, L> {
  using type = std::pair<Regrouped<A, L>, Regrouped<B, L>>;
  static type from(std::vector<std::pair<A, B>> each, const SharedDevices& devices) {
    return type(regroup_part<L>(each, devices, [](auto& item) -> A& { return item.first; }),
                regroup_part<L>(each, devices, [](auto& item) -> B& { return item.second; }));
  }
};

template <class T, class L>
struct Regroup<std::optional<T>, L> {
  using type = std::optional<Regrouped<T, L>>;
  static type from(std::vector<std::optional<T>> each, const SharedDevices& devices) {
    for (std::size_t i = 1; i < each.size(); ++i) {
      if (each[i].has_value() != each[0].has_value()) {
        nests_differ(each[i] ? "a value instead of nothing" : "nothing instead of a value",
                     static_cast<int>(i));
      }
    }
    if (!each[0]) return std::nullopt;
    return regroup_part<L>(each, devices, [](auto& item) -> T& { return *item; });
  }
};

template <class Map, class Result, class L>
Result regroup_map(std::vector<Map>& each, const SharedDevices& devices) {
  Result result;
  for (std::size_t i = 1; i < each.size(); ++i) {
    if (each[i].size() != each[0].size()) nests_differ("other keys", static_cast<int>(i));
  }
  for (auto& [key, first] : each[0]) {
    std::vector<typename Map::mapped_type> parts;
    for (std::size_t i = 0; i < each.size(); ++i) {
      const auto found = each[i].find(key);
      if (found == each[i].end()) nests_differ("other keys", static_cast<int>(i));
      parts.push_back(std::move(found->second));
    }
    result.emplace(key, Regroup<typename Map::mapped_type, L>::from(std::move(parts), devices));
  }
  return result;
}

template <class K, class T, class C, class A, class L>
struct Regroup<std::map<K, T, C, A>, L> {
  using type = std::map<K, Regrouped<T, L>, C>;
  static type from(std::vector<std::map<K, T, C, A>> each, const SharedDevices& devices) {
    return regroup_map<std::map<K, T, C, A>, type, L>(each, devices);
  }
};

template <class K, class T, class H, class E, class A, class L>
struct Regroup<std::unordered_map<K, T, H, E, A>, L> {
  using type = std::unordered_map<K, Regrouped<T, L>, H, E>;
  static type from(std::vector<std::unordered_map<K, T, H, E, A>> each,
                   const SharedDevices& devices) {
    return regroup_map<std::unordered_map<K, T, H, E, A>, type, L>(each, devices);
  }
};

}  // namespace lockstep::detail
