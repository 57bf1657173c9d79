// DistributionStrategy: a Strategy under the names that it had in the beginning, for programs that
// say tower where the others say replica.
//
//   MirroredStrategy mirrored({.devices = {"CPU:0", "CPU:1"}});
//   DistributionStrategy distribution(mirrored);
//   auto results = distribution.call_for_each_tower([](int three) {
//     auto tower = get_tower_context();
//     const int v = three + tower->tower_id();
//     return v + tower->merge_call([](DistributionStrategy d, const PerReplica<int>& each) {
//       const std::vector<int> all = d.unwrap(each);
//       return std::accumulate(all.begin(), all.end(), 0);
//     }, v);
//   }, 3);
//   distribution.unwrap(results);                                       // {10, 11}
//
// A view that owns nothing: copy it as you like, the strategy must outlive it. What each verb does,
// what it refuses and on which thread it may be called is said in strategy.h; here names, arguments
// and results are translated. Results are Mirrored where the original says so, Colocated if a
// variable was the destination.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/strategy.h"

namespace lockstep {

class TowerContext;

/// Stands where a session or its configuration was asked for. There is none: calls do their work.
struct NoSession {};

/// What older programs passed to call_for_each_tower() as a keyword.
struct TowerOptions {
  std::optional<bool> run_concurrently;  // default: as the strategy does
};

/// What map() leaves on one device: the results of its items. Reductions count items, not devices.
template <class T>
struct MapOutput {
  std::vector<T> items;
};

using TowerReducePair = std::pair<PerReplica<Tensor>, std::optional<Destinations>>;

namespace detail {
/// The positions of a value's components in the order that unwrap() gives them: the strategy's if
/// it lives on the strategy's devices, else that of the device names.
std::vector<int> unwrap_order(Strategy& strategy, const DeviceList& devices);

template <class T>
Tensor as_tensor(const T& value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return scalar_tensor(value);
  } else {
    return value;
  }
}
}  // namespace detail

class DistributionStrategy {
 public:
  // Implicit, so that a merge function may take a DistributionStrategy.
  DistributionStrategy(Strategy& strategy) noexcept : strategy_(&strategy) {}

  [[nodiscard]] Strategy& strategy() const noexcept { return *strategy_; }

  [[nodiscard]] bool is_single_tower() const noexcept { return num_towers() == 1; }
  [[nodiscard]] int num_towers() const noexcept { return strategy_->num_replicas_in_sync(); }
  /// Copies: changing them changes nothing.
  [[nodiscard]] DeviceList worker_devices() const { return strategy_->worker_devices(); }
  [[nodiscard]] DeviceList parameter_devices() const { return strategy_->parameter_devices(); }
  /// Arrives in each tower of call_for_each_tower() as the index of its worker device.
  [[nodiscard]] PerReplica<int> worker_device_index() const;

  /// Chooses the cross-device ops by the links between GPUs, unless the strategy was given some.
  void configure(NoSession = {}) const;

  Scope scope() const { return strategy_->scope(); }
  template <class T>
  Scope colocate_vars_with(const T& variable_or_devices) const {
    return strategy_->colocate_vars_with(variable_or_devices);
  }
  Scope tower_local_var_scope(ReduceOp reduce_method) const {
    return strategy_->tower_local_var_scope(reduce_method);
  }

  /// Strategy::run(). fn may take a TowerContext first.
  template <class F, class... Args>
  requires(!std::is_same_v<std::remove_cvref_t<F>, TowerOptions>) auto call_for_each_tower(
      F&& fn, const Args&... args) const {
    return strategy_->run(fn, args...);
  }
  template <class F, class... Args>
  auto call_for_each_tower(const TowerOptions& options, F&& fn, const Args&... args) const {
    RunOptions run;
    if (options.run_concurrently) {
      run.execution = *options.run_concurrently ? Execution::concurrent : Execution::sequential;
    }
    return strategy_->run(run, fn, args...);
  }

  /// Calls fn(item, args...) for every item: item k in tower k mod n. Not for functions that merge.
  template <class T, class F, class... Args>
  auto map(const std::vector<T>& over, F&& fn, const Args&... args) const {
    return strategy_->run(
        [&](ReplicaContext& replica, const auto&... own) {
          using R = std::remove_cvref_t<decltype(fn(over.front(), own...))>;
          const auto stride = static_cast<std::size_t>(replica.num_replicas_in_sync());
          MapOutput<R> output;
          for (auto k = static_cast<std::size_t>(replica.replica_id_in_sync_group());
               k < over.size(); k += stride) {
            output.items.push_back(fn(over[k], own...));
          }
          return output;
        },
        args...);
  }

  /// Combines over all towers, "sum" or "mean", and copies to the destinations: a variable, a
  /// device, a DeviceList; std::nullopt for where the value is.
  Mirrored<Tensor> reduce(ReduceOp method, const PerReplica<Tensor>& value,
                          const std::optional<Destinations>& destinations = std::nullopt,
                          Here here = Here::now()) const;
  Colocated<Tensor> reduce(ReduceOp method, const PerReplica<Tensor>& value,
                           const Variable& destination, Here here = Here::now()) const {
    return strategy_->reduce_to(method, value, destination, here);
  }
  template <class T>
  requires std::is_arithmetic_v<T> Mirrored<Tensor> reduce(
      ReduceOp method, const PerReplica<T>& value,
      const std::optional<Destinations>& destinations = std::nullopt, Here here = Here::now())
  const;
  /// A mean of what map() gave divides by the number of items.
  template <class T>
  Mirrored<Tensor> reduce(ReduceOp method, const PerReplica<MapOutput<T>>& value,
                          const std::optional<Destinations>& destinations = std::nullopt,
                          Here here = Here::now()) const;
  /// Not a value a tower: as Strategy::reduce() takes it.
  Mirrored<Tensor> reduce(ReduceOp method, const Tensor& value,
                          const std::optional<Destinations>& destinations = std::nullopt,
                          Here here = Here::now()) const;
  template <class T, class... Rest>
  void reduce(ReduceOp method, const Mirrored<T>& value, const Rest&...) const {
    strategy_->reduce(method, value);
  }

  /// Many reductions at once; as many results, in the same order.
  std::vector<Mirrored<Tensor>> batch_reduce(ReduceOp method,
                                             std::span<const TowerReducePair> pairs,
                                             Here here = Here::now()) const;
  std::vector<Colocated<Tensor>> batch_reduce(
      ReduceOp method, const std::vector<std::pair<PerReplica<Tensor>, Variable>>& pairs,
      Here here = Here::now()) const {
    return strategy_->batch_reduce_to(method, pairs, here);
  }

  /// Whole elements of dataset_fn() for every tower (lockstep/input_iterators.h).
  template <class F>
  auto distribute_dataset(F&& dataset_fn, const InputOptions& options = {},
                          Here here = Here::now()) const;

  Mirrored<Tensor> broadcast(const Tensor& tensor,
                             const std::optional<Destinations>& destinations = std::nullopt) const;
  Colocated<Tensor> broadcast(const Tensor& tensor, const Variable& destination) const {
    return strategy_->broadcast(tensor, destination);
  }

  template <class V, class F, class... Args>
  auto update(const V& variable, F&& fn, const Args&... args) const {
    return strategy_->update(variable, fn, args...);
  }
  template <class F, class... Args>
  void batch_update(const std::vector<Variable>& variables, F&& fn,
                    const std::vector<Args>&... args) const {
    strategy_->batch_update(variables, fn, args...);
  }
  template <class F, class... Args>
  auto update_non_slot(const NonSlotDevices& colocate_with, F&& fn, const Args&... args) const {
    return strategy_->update_non_slot(colocate_with, fn, args...);
  }
  [[nodiscard]] NonSlotDevices non_slot_devices(const std::vector<Variable>& var_list) const {
    return strategy_->non_slot_devices(var_list);
  }

  /// A copy on the destination; what its name lacks comes from the current device.
  template <class V>
  Tensor fetch(const V& value, std::string_view destination = "/device:CPU:0",
               const Strategy::FetchFunction& fn = {}) const {
    return strategy_->fetch(value, Device::canonicalize(destination, current_device()), fn);
  }

  /// All components of a value or variable; of anything else, that alone.
  template <class T, class L>
  [[nodiscard]] std::vector<T> unwrap(const Distributed<T, L>& value) const {
    std::vector<T> components;
    for (const int i : detail::unwrap_order(*strategy_, value.devices())) {
      components.push_back(value[i]);
    }
    return components;
  }
  [[nodiscard]] std::vector<Component> unwrap(const Variable& variable) const;
  [[nodiscard]] std::vector<Component> unwrap(const NonSlotVariable& variable) const {
    return unwrap(variable.variable());
  }
  template <class T>
  [[nodiscard]] std::vector<T> unwrap(const T& value) const {
    detail::require_cross(*strategy_, "unwrap");
    return {value};
  }

  /// Completes everything pending in the value; the name labels the work in records.
  template <class T>
  coll::Work group(const T& value, std::string_view name = {}) const {
    return strategy_->group(value, name);
  }

 private:
  Strategy* strategy_;
};

/// One tower's view of a call_for_each_tower(), a ReplicaContext by its older names. Copy it, but
/// not out of the tower.
class TowerContext {
 public:
  // Implicit, so that a tower function may take a TowerContext.
  TowerContext(ReplicaContext& replica) noexcept : replica_(&replica) {}

  [[nodiscard]] int tower_id() const { return replica_->replica_id_in_sync_group(); }
  [[nodiscard]] bool is_single_tower() const noexcept { return num_towers() == 1; }
  [[nodiscard]] int num_towers() const noexcept { return replica_->num_replicas_in_sync(); }
  [[nodiscard]] DistributionStrategy distribution_strategy() const noexcept {
    return replica_->strategy();
  }
  [[nodiscard]] const Device& device() const noexcept { return replica_->device(); }
  Scope tower_local_var_scope(ReduceOp reduce_method) const {
    return replica_->strategy().tower_local_var_scope(reduce_method);
  }

  /// ReplicaContext::merge_call(). fn may take a DistributionStrategy first. With more arguments
  /// than here, merge_at() of replica().
  template <class F>
  auto merge_call(F&& fn, Here here = Here::now()) const {
    return replica_->merge_at(here, fn);
  }
  template <class F, class A>
  auto merge_call(F&& fn, A&& a, Here here = Here::now()) const {
    return replica_->merge_at(here, fn, std::forward<A>(a));
  }
  template <class F, class A, class B>
  auto merge_call(F&& fn, A&& a, B&& b, Here here = Here::now()) const {
    return replica_->merge_at(here, fn, std::forward<A>(a), std::forward<B>(b));
  }
  template <class F, class A, class B, class C>
  auto merge_call(F&& fn, A&& a, B&& b, C&& c, Here here = Here::now()) const {
    return replica_->merge_at(here, fn, std::forward<A>(a), std::forward<B>(b), std::forward<C>(c));
  }

  [[nodiscard]] ReplicaContext& replica() const noexcept { return *replica_; }

 private:
  ReplicaContext* replica_;
};

/// The context of the tower this thread runs; std::nullopt in cross-tower context.
std::optional<TowerContext> get_tower_context();

/// Adds to every copy of a variable once, however many towers call it; each of them must.
void increment_var(const Variable& variable, const at::Scalar& amount = 1, Here here = Here::now());

// --- templates ---------------------------------------------------------------------------------

template <class T>
requires std::is_arithmetic_v<T> Mirrored<Tensor> DistributionStrategy::reduce(
    ReduceOp method, const PerReplica<T>& value, const std::optional<Destinations>& destinations,
    Here here)
const {
  std::vector<Tensor> each;
  for (int i = 0; i < value.size(); ++i) each.push_back(detail::as_tensor(value[i]));
  return reduce(method, PerReplica<Tensor>(std::move(each), value.shared_devices()), destinations,
                here);
}

template <class T>
Mirrored<Tensor> DistributionStrategy::reduce(ReduceOp method,
                                              const PerReplica<MapOutput<T>>& value,
                                              const std::optional<Destinations>& destinations,
                                              Here here) const {
  // In the order of the items, so that the sum does not depend on the number of towers.
  std::vector<Tensor> items;
  DeviceList devices;
  for (std::size_t round = 0; round < value[0].items.size(); ++round) {
    for (int i = 0; i < value.size() && round < value[i].items.size(); ++i) {
      items.push_back(detail::as_tensor(value[i].items[round]));
      devices.push_back(value.devices()[static_cast<std::size_t>(i)]);
    }
  }
  return strategy_->reduce_to(method, PerReplica<Tensor>(std::move(items), std::move(devices)),
                              destinations.value_or(Destinations(value.devices())), here);
}

}  // namespace lockstep
