// The spellings of tf.compat.v1.distribute, for programs that say experimental_distribute_dataset
// and update_config_proto.
//
//   compat::v1::MultiWorkerMirroredStrategy strategy;    // of another: compat::v1::Strategy(it)
//   auto input = strategy.make_input_fn_iterator(input_fn);
//   auto losses = strategy.experimental_run(replica_fn, input);
//   ConfigProto config = strategy.update_config_proto({});
//
// What each verb does, what it refuses and on which thread it may be called is said in strategy.h;
// here names, arguments and results are translated. Where there was a session or a list of things
// to run, the call does its work. Verbs of input need lockstep/input_iterators.h.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/distribution_strategy.h"
#include "lockstep/multi_worker_mirrored_strategy.h"

namespace lockstep {

/// What older programs gave a session to be configured with: the fields that a strategy sets. They
/// say what joining does in any case; nothing else can be chosen by them.
struct ConfigProto {
  /// Small reductions travel together: those of these operations.
  bool scoped_allocator_optimization = false;
  std::vector<std::string> scoped_allocator_enable_op = {};
  /// Whom the others look for: the task of rank 0.
  std::string collective_group_leader = {};
  /// Whose devices this process computes on: its own.
  std::vector<std::string> device_filters = {};
  bool collective_nccl = false;

  friend bool operator==(const ConfigProto&, const ConfigProto&) = default;
};

/// A copy, changed for a task that the resolver describes; without a cluster there is no leader and
/// no filter. ConfigError for a cluster that does not say which of its tasks this is, or that has
/// neither chief nor workers.
[[nodiscard]] ConfigProto update_config_proto(const ConfigProto& config,
                                              const ClusterResolver& resolver,
                                              Communication communication = "auto");

/// The verbs that were not for everybody, by their own names. A view: the strategy outlives it.
class StrategyExtended {
 public:
  explicit StrategyExtended(Strategy& strategy) noexcept : strategy_(&strategy) {}

  [[nodiscard]] Strategy& strategy() const noexcept { return *strategy_; }
  // So that it can be given to whatever takes a strategy.
  operator Strategy&() const noexcept { return *strategy_; }

  /// Copies: changing them changes nothing.
  [[nodiscard]] DeviceList worker_devices() const { return strategy_->worker_devices(); }
  [[nodiscard]] DeviceList parameter_devices() const { return strategy_->parameter_devices(); }

  /// Strategy::run().
  template <class F, class... Args>
  auto call_for_each_replica(F&& fn, const Args&... args) const {
    return strategy_->run(fn, args...);
  }
  template <class V, class To>
  auto reduce_to(ReduceOp op, const V& value, const To& destinations,
                 Here here = Here::now()) const {
    return strategy_->reduce_to(op, value, destinations, here);
  }
  template <class Pairs>
  auto batch_reduce_to(ReduceOp op, const Pairs& value_destination_pairs,
                       Here here = Here::now()) const {
    return strategy_->batch_reduce_to(op, value_destination_pairs, here);
  }
  template <class To>
  auto broadcast_to(const Tensor& tensor, const To& destinations) const {
    return strategy_->broadcast(tensor, destinations);
  }
  template <class V, class F, class... Args>
  auto update(const V& variable, F&& fn, const Args&... args) const {
    return strategy_->update(variable, fn, args...);
  }
  template <class F, class... Args>
  auto update_non_slot(const NonSlotDevices& colocate_with, F&& fn, const Args&... args) const {
    return strategy_->update_non_slot(colocate_with, fn, args...);
  }
  [[nodiscard]] NonSlotDevices non_slot_devices(const std::vector<Variable>& var_list) const {
    return strategy_->non_slot_devices(var_list);
  }
  template <class T>
  Scope colocate_vars_with(const T& variable_or_devices) const {
    return strategy_->colocate_vars_with(variable_or_devices);
  }

 private:
  Strategy* strategy_;
};

namespace compat::v1 {

/// A view of any strategy: copy it as you like, the strategy must outlive it.
class Strategy {
 public:
  explicit Strategy(lockstep::Strategy& strategy) noexcept : strategy_(&strategy) {}

  [[nodiscard]] lockstep::Strategy& strategy() const noexcept { return *strategy_; }

  [[nodiscard]] StrategyExtended extended() const noexcept { return StrategyExtended(*strategy_); }
  [[nodiscard]] int num_replicas_in_sync() const noexcept {
    return strategy_->num_replicas_in_sync();
  }
  /// Null unless it is a MultiWorkerMirroredStrategy.
  [[nodiscard]] const ClusterResolver* cluster_resolver() const noexcept;

  Scope scope() const { return strategy_->scope(); }

  template <class F, class... Args>
  requires(!std::is_same_v<std::remove_cvref_t<F>, RunOptions>) auto run(
      F&& fn, const Args&... args) const {
    return strategy_->run(fn, args...);
  }
  template <class F, class... Args>
  auto run(const RunOptions& options, F&& fn, const Args&... args) const {
    return strategy_->run(options, fn, args...);
  }
  /// What run() was called for a while.
  template <class F, class... Args>
  auto experimental_run_v2(F&& fn, const Args&... args) const {
    return run(fn, args...);
  }
  /// fn(batch) with the iterator's next batch; without an iterator, fn().
  template <class F, class T>
  auto experimental_run(F&& fn, InputIterator<T>& input_iterator) const {
    return strategy_->experimental_run(fn, input_iterator);
  }
  template <class F>
  auto experimental_run(F&& fn) const {
    return strategy_->run(fn);
  }

  /// Over replicas, and along(axis) of each one's tensor if that is said.
  template <class V>
  auto reduce(ReduceOp op, const V& value, Here here = Here::now()) const {
    return strategy_->reduce(op, value, here);
  }
  template <class V>
  auto reduce(ReduceOp op, const V& value, Along axis, Here here = Here::now()) const {
    return strategy_->reduce(op, value, axis, here);
  }

  template <class T, class B>
  auto experimental_distribute_dataset(const Dataset<T, B>& dataset,
                                       const InputOptions& options = {},
                                       Here here = Here::now()) const {
    return strategy_->distribute(dataset, options, here);
  }
  template <class F>
  auto experimental_distribute_datasets_from_function(F&& dataset_fn,
                                                      const InputOptions& options = {},
                                                      Here here = Here::now()) const {
    return strategy_->distribute_from_function(dataset_fn, options, here);
  }
  template <class F>
  auto experimental_distribute_values_from_function(F&& value_fn) const {
    return strategy_->distribute_values_from_function(value_fn);
  }
  template <class N>
  auto experimental_make_numpy_dataset(const N& numpy_input, NoSession = {}) const {
    return strategy_->make_numpy_dataset(numpy_input);
  }
  /// Of this process, in replica order; of anything that is not distributed, that alone.
  template <class V>
  [[nodiscard]] auto experimental_local_results(const V& value) const {
    return local_results(value);
  }

  template <class T, class B>
  auto make_dataset_iterator(const Dataset<T, B>& dataset, Here here = Here::now()) const {
    return strategy_->make_dataset_iterator(dataset, {}, here);
  }
  template <class F>
  auto make_input_fn_iterator(F&& input_fn,
                              InputReplicationMode mode = InputReplicationMode::per_worker,
                              Here here = Here::now()) const {
    return strategy_->make_input_fn_iterator(input_fn, mode, {}, here);
  }

  /// A changed copy; an equal one if there is no cluster resolver.
  [[nodiscard]] ConfigProto update_config_proto(const ConfigProto& config_proto) const;

 private:
  [[nodiscard]] const lockstep::MultiWorkerMirroredStrategy* multi_worker() const noexcept;

  lockstep::Strategy* strategy_;
};

namespace detail {
/// Stands first among the bases, so that there is something to view.
struct OwnedStrategy {
  explicit OwnedStrategy(const MultiWorkerOptions& options) : owned(options) {}
  lockstep::MultiWorkerMirroredStrategy owned;
};
}  // namespace detail

/// A MultiWorkerMirroredStrategy and the view of it in one.
class MultiWorkerMirroredStrategy : private detail::OwnedStrategy, public Strategy {
 public:
  explicit MultiWorkerMirroredStrategy(
      Communication communication = Communication::automatic,
      std::optional<AnyClusterResolver> cluster_resolver = std::nullopt);
  /// With more to choose.
  explicit MultiWorkerMirroredStrategy(const MultiWorkerOptions& options)
      : OwnedStrategy(options), Strategy(owned) {}
};

}  // namespace compat::v1

}  // namespace lockstep
