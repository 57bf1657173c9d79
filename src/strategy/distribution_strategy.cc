#include "lockstep/distribution_strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "lockstep/error.h"
#include "strategy/core.h"

namespace lockstep {

namespace detail {

std::vector<int> unwrap_order(Strategy& strategy, const DeviceList& devices) {
  require_cross(strategy, "unwrap");
  const DeviceList& own = *replica_devices(strategy);
  const bool same = std::is_permutation(devices.begin(), devices.end(), own.begin(), own.end());
  const auto place = [&](const Device& device) {
    return std::find(own.begin(), own.end(), device);
  };
  std::vector<int> order(devices.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    const Device& left = devices[static_cast<std::size_t>(a)];
    const Device& right = devices[static_cast<std::size_t>(b)];
    return same ? place(left) < place(right) : left.str() < right.str();
  });
  return order;
}

}  // namespace detail

namespace {

/// This API has no maximum and no minimum.
ReduceOp sum_or_mean(ReduceOp method) {
  if (!method.picks()) return method;
  throw InvalidUsage(
      fmt::format("reduce_method is {}: a DistributionStrategy combines with \"sum\" or \"mean\". "
                  "Strategy::reduce() takes it",
                  method.name()));
}

}  // namespace

PerReplica<int> DistributionStrategy::worker_device_index() const {
  static_cast<void>(strategy_->worker_devices());  // the default strategy has none, and says so
  return strategy_->distribute_values_from_function(
      [](const ValueContext& context) { return context.replica_id_in_sync_group; });
}

void DistributionStrategy::configure(NoSession) const { strategy_->core().choose_ops_by_links(); }

Mirrored<Tensor> DistributionStrategy::reduce(ReduceOp method, const PerReplica<Tensor>& value,
                                              const std::optional<Destinations>& destinations,
                                              Here here) const {
  return strategy_->reduce_to(sum_or_mean(method), value,
                              destinations.value_or(Destinations(value)), here);
}

Mirrored<Tensor> DistributionStrategy::reduce(ReduceOp method, const Tensor& value,
                                              const std::optional<Destinations>& destinations,
                                              Here here) const {
  return broadcast(strategy_->reduce(sum_or_mean(method), value, here), destinations);
}

std::vector<Mirrored<Tensor>> DistributionStrategy::batch_reduce(
    ReduceOp method, std::span<const TowerReducePair> pairs, Here here) const {
  std::vector<ReducePair> wanted;
  wanted.reserve(pairs.size());
  for (const auto& [value, destinations] : pairs) {
    wanted.push_back({value, destinations.value_or(Destinations(value))});
  }
  return strategy_->batch_reduce_to(sum_or_mean(method), std::span<const ReducePair>(wanted), here);
}

Mirrored<Tensor> DistributionStrategy::broadcast(
    const Tensor& tensor, const std::optional<Destinations>& destinations) const {
  return destinations ? strategy_->broadcast(tensor, *destinations) : strategy_->broadcast(tensor);
}

std::vector<Component> DistributionStrategy::unwrap(const Variable& variable) const {
  std::vector<Component> components;
  for (const int i : detail::unwrap_order(*strategy_, variable.devices())) {
    components.push_back(variable[i]);
  }
  return components;
}

std::optional<TowerContext> get_tower_context() {
  ReplicaContext* replica = get_replica_context();
  if (replica == nullptr) return std::nullopt;
  return TowerContext(*replica);
}

void increment_var(const Variable& variable, const at::Scalar& amount, Here here) {
  ReplicaContext* replica = get_replica_context();
  if (replica == nullptr) {
    throw InvalidUsage(
        "increment_var is called by every tower, and this is cross-tower context; here use "
        "variable.assign_add(amount)",
        Code::failed_precondition);
  }
  replica->merge_at(
      here,
      [amount](Strategy& strategy, const Variable& merged) {
        strategy.update(merged, [&](const Component& copy) { copy.assign_add(amount); });
      },
      variable);
}

}  // namespace lockstep
