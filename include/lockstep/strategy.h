// Strategy: replicas of a computation and the verbs across them.
//
//   MirroredStrategy strategy({.devices = {"CPU:0", "CPU:1"}});
//   auto scope = strategy.scope();                       // current on this thread until it ends
//   auto w = ls::variable("w", torch::zeros({2}), {.trainable = true});
//   auto losses = strategy.run([&](ReplicaContext& replica, const Tensor& x) { ... }, batch);
//   Tensor loss = strategy.reduce(ReduceOp::mean, losses);
//
// Every replica of run() has a thread; replica 0 runs on the caller's. The verbs stand in
// cross-replica context: in scope(), inside a merge function, or outside of everything (then the
// strategy is entered for the call). From another strategy's scope, or inside a step function, they
// are InvalidUsage. Two threads may use one strategy: their runs, updates, assignments and optimizer
// steps take turns.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/coll/work.h"
#include "lockstep/context.h"
#include "lockstep/cross_device_ops.h"
#include "lockstep/detail/runtime.h"
#include "lockstep/detail/step_arguments.h"
#include "lockstep/input_context.h"
#include "lockstep/reduce_op.h"
#include "lockstep/replica_context.h"

namespace lockstep {

/// How the replicas of a run are executed. Both give the same bits.
enum class Execution {
  concurrent,
  sequential,  // one replica at a time, in order: for debugging
};

struct RunOptions {
  std::optional<Execution> execution = {};             // default: the strategy's
  std::optional<std::int64_t> global_batch_size = {};  // ReplicaContext::global_batch_size()
};

struct ValueContext {
  int replica_id_in_sync_group = 0;
  int num_replicas_in_sync = 1;
};

/// Where non-slot variables live: what non_slot_devices() gives, for colocate_vars_with() and
/// update_non_slot().
struct NonSlotDevices {
  DeviceList devices;
};

namespace detail {
template <class T>
concept Number = std::is_arithmetic_v<T> && sizeof(T) <= sizeof(std::uint64_t);
}  // namespace detail

/// A strategy being current. Ends with the object, in the reverse order of beginning; exit() does
/// it earlier. Out of order exit() is InvalidUsage, names both scopes and changes nothing.
class [[nodiscard]] Scope {
 public:
  Scope(Scope&& other) noexcept;
  Scope& operator=(Scope&&) = delete;
  ~Scope();
  void exit();

  explicit Scope(detail::ScopeId id) noexcept : id_(id) {}

 private:
  detail::ScopeId id_;
};

template <class Net>
class Model;
class DistributedOptimizer;
struct GradientOptions;
template <class T, class Batching>
class Dataset;
template <class T>
class DistributedDataset;
template <class T>
class InputIterator;

class Strategy {
 public:
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;
  virtual ~Strategy();

  [[nodiscard]] int num_replicas_in_sync() const noexcept;
  /// Devices that replicas compute on, in replica order, and devices that variables live on.
  [[nodiscard]] const DeviceList& worker_devices() const;
  [[nodiscard]] const DeviceList& parameter_devices() const;
  [[nodiscard]] const std::string& name() const noexcept;
  /// Whether this process is the one that saves, logs and prints for all: worker 0, and every
  /// process whose strategy spans no others.
  [[nodiscard]] bool is_chief() const noexcept;
  /// When several replicas threw: what run() did not rethrow, in replica order.
  [[nodiscard]] std::vector<std::exception_ptr> last_errors() const;
  /// The same devices and options, with threads and variables of its own.
  [[nodiscard]] std::unique_ptr<Strategy> clone() const;

  /// Starts the random generator of every replica over, as a new strategy with this seed would:
  /// replica i's from (seed, i), whatever the layout. All workers give the same seed.
  void manual_seed(std::uint64_t seed, Here here = Here::now());
  /// The state of every replica's generator, those of all workers in the order of global replicas
  /// (byte tensors, as libtorch lays them out); and back, in any layout with as many replicas. Of
  /// the default strategy: libtorch's default generator.
  [[nodiscard]] std::vector<Tensor> generator_state(Here here = Here::now());
  void set_generator_state(const std::vector<Tensor>& states);

  /// Makes this strategy current on this thread, in cross-replica context.
  Scope scope();
  /// While it lasts, new variables live where this one (this value, these devices) does.
  Scope colocate_vars_with(const Variable& variable);
  Scope colocate_vars_with(const NonSlotVariable& variable);
  Scope colocate_vars_with(const NonSlotDevices& devices);
  Scope colocate_vars_with(const Destinations& devices);
  /// While it lasts, new variables are sync-on-read and not trainable.
  Scope tower_local_var_scope(ReduceOp aggregation);

  /// Runs fn once for each replica. A PerReplica argument arrives as the replica's component, a
  /// Mirrored one as an Agreed value, a variable as itself, anything else as const. fn may take a
  /// ReplicaContext& first. Gives the results of all replicas: a T as PerReplica<T>, an Agreed<T>
  /// as Mirrored<T>, containers element by element. A distributed batch among the arguments tells
  /// the replicas the size of the whole.
  template <class F, class... Args>
  requires(!std::is_same_v<std::remove_cvref_t<F>, RunOptions>) auto run(F&& fn,
                                                                         const Args&... args) {
    return run(RunOptions{}, fn, args...);
  }
  template <class F, class... Args>
  auto run(const RunOptions& options, F&& fn, const Args&... args);

  /// One value a replica: fn(ValueContext), called on this thread in replica order. Containers
  /// element by element, as in run().
  template <class F>
  auto distribute_values_from_function(F&& fn);

  /// Shares out the batches of a dataset among the replicas (lockstep/distributed_dataset.h).
  template <class T, class B>
  DistributedDataset<T> distribute(const Dataset<T, B>& dataset, const InputOptions& options = {},
                                   Here here = Here::now());
  /// A dataset that fn(InputContext) makes, of which every replica takes whole elements.
  template <class F>
  auto distribute_from_function(F&& fn, const InputOptions& options = {}, Here here = Here::now());
  /// Input by its older names (lockstep/input_iterators.h).
  template <class T, class B>
  InputIterator<T> make_dataset_iterator(const Dataset<T, B>& dataset,
                                         const InputOptions& options = {}, Here here = Here::now());
  template <class F>
  auto make_input_fn_iterator(F&& fn, InputReplicationMode mode = InputReplicationMode::per_worker,
                              const InputOptions& options = {}, Here here = Here::now());
  template <class N>
  auto make_numpy_dataset(const N& nest);
  template <class F, class T>
  auto experimental_run(F&& fn, InputIterator<T>& input);

  /// Waits until every worker is here. Timeout naming those that are not, after `timeout`, or the
  /// strategy's own if it is 0. Returns at once where this process has no others.
  void barrier(std::chrono::nanoseconds timeout = {}, Here here = Here::now());

  /// The chief's value on every worker: a tensor of whatever shape and type, a text, a number. What
  /// the other workers give is not looked at; a tensor may be undefined there.
  [[nodiscard]] Tensor from_chief(const Tensor& value, Here here = Here::now());
  [[nodiscard]] std::string from_chief(const std::string& value, Here here = Here::now());
  template <detail::Number T>
  [[nodiscard]] T from_chief(T value, Here here = Here::now());

  /// Combines over all replicas. The result is plain: one tensor, on the current device. A mean of
  /// integers is floating (float32 of 8 and 16 bits, float64 of 32 and 64).
  Tensor reduce(ReduceOp op, const PerReplica<Tensor>& value, Here here = Here::now());
  /// Also along an axis of each replica's tensor; a mean divides by the true count, so replicas may
  /// have different numbers of rows, or none. The maximum of no rows at all is the lowest value of
  /// the type, the minimum the highest.
  Tensor reduce(ReduceOp op, const PerReplica<Tensor>& value, Along axis, Here here = Here::now());
  Tensor reduce(ReduceOp op, const PerReplica<Tensor>& value, std::span<const std::int64_t> axes,
                Here here = Here::now());
  /// Something that is not distributed, one of a worker: 0 stays 0; of one worker a mean, maximum
  /// or minimum is the value itself, and a sum is refused unless there is one replica.
  Tensor reduce(ReduceOp op, const Tensor& value, Here here = Here::now());
  Tensor reduce(ReduceOp op, const at::Scalar& value, Here here = Here::now());
  /// Numbers and structs (MemberNest) of each replica.
  template <class T>
  auto reduce(ReduceOp op, const PerReplica<T>& value, Here here = Here::now());
  template <class T>
  auto reduce(ReduceOp op, const PerReplica<T>& value, Along axis, Here here = Here::now());
  template <class T, class... Rest>
  void reduce(ReduceOp, const Mirrored<T>&, const Rest&...) {
    static_assert(!sizeof(T*),
                  "lockstep: a Mirrored value is already equal on every replica; read it with "
                  "any() instead of reducing it");
  }

  /// Combines, and copies to every destination: Colocated with a variable, Mirrored on devices.
  Colocated<Tensor> reduce_to(ReduceOp op, const PerReplica<Tensor>& value,
                              const Variable& destination, Here here = Here::now());
  Mirrored<Tensor> reduce_to(ReduceOp op, const PerReplica<Tensor>& value,
                             const Destinations& destinations, Here here = Here::now());
  /// Something that is not distributed, as in reduce().
  Colocated<Tensor> reduce_to(ReduceOp op, const Tensor& value, const Variable& destination,
                              Here here = Here::now());
  Mirrored<Tensor> reduce_to(ReduceOp op, const Tensor& value, const Destinations& destinations,
                             Here here = Here::now());
  Colocated<Tensor> reduce_to(ReduceOp op, const at::Scalar& value, const Variable& destination,
                              Here here = Here::now());
  Mirrored<Tensor> reduce_to(ReduceOp op, const at::Scalar& value, const Destinations& destinations,
                             Here here = Here::now());
  template <class T, class To, class... Rest>
  void reduce_to(ReduceOp, const Mirrored<T>&, const To&, const Rest&...) {
    static_assert(!sizeof(T*),
                  "lockstep: a Mirrored value is already equal on every replica; copy it with "
                  "broadcast(value.any(), destinations) instead of reducing it");
  }
  /// Many at once, in one pass over memory by all replicas' threads together.
  std::vector<Colocated<Tensor>> batch_reduce_to(
      ReduceOp op, const std::vector<std::pair<PerReplica<Tensor>, Variable>>& pairs,
      Here here = Here::now());
  std::vector<Mirrored<Tensor>> batch_reduce_to(ReduceOp op, std::span<const ReducePair> pairs,
                                                Here here = Here::now());

  /// Copies a tensor to every replica's device, to a variable's devices, or to those given.
  Mirrored<Tensor> broadcast(const Tensor& tensor);
  Colocated<Tensor> broadcast(const Tensor& tensor, const Variable& destination);
  Mirrored<Tensor> broadcast(const Tensor& tensor, const Destinations& destinations);

  /// Concatenates the replicas' tensors along an axis.
  Tensor gather(const PerReplica<Tensor>& value, std::int64_t axis = 0, Here here = Here::now());
  /// The texts of all workers, in the order of workers: one of each, or as many as each has; or one
  /// of each replica.
  std::vector<std::string> gather(const std::string& text, Here here = Here::now());
  std::vector<std::string> gather(const std::vector<std::string>& texts, Here here = Here::now());
  std::vector<std::string> gather(const PerReplica<std::string>& texts, Here here = Here::now());

  /// Runs fn(component, args...) for each copy of the variable, each on its replica's thread,
  /// without recording for autograd. Arguments: Colocated and Mirrored values and other variables
  /// on the same devices (given as their component), plain values.
  template <class F, class... Args>
  auto update(const Variable& variable, F&& fn, const Args&... args);
  template <class V, class F, class... Args>
  requires(!std::is_convertible_v<const V&, const Variable&>) void update(const V&, F&&,
                                                                          const Args&...) {
    static_assert(!std::is_same_v<V, NonSlotVariable>,
                  "lockstep: a NonSlotVariable is written by update_non_slot(), not by update()");
    static_assert(std::is_same_v<V, NonSlotVariable>, "lockstep: update() takes a Variable first");
  }
  /// update() of many variables with one hand-over to the replicas' threads: for each k in turn,
  /// fn(variables[k]'s component, args[k]...). Every list is as long as that of the variables.
  template <class F, class... Args>
  void batch_update(const std::vector<Variable>& variables, F&& fn,
                    const std::vector<Args>&... args);
  /// Runs fn(args...) for each non-slot device. Arguments as in update(), with NonSlot values and
  /// NonSlotVariables in place of Colocated ones.
  template <class F, class... Args>
  auto update_non_slot(const NonSlotDevices& where, F&& fn, const Args&... args);

  /// One copy of a module for each replica, all equal (lockstep/model.h).
  template <class Net, class... Args>
  Model<Net> create(const Args&... args);

  /// An optimizer T of torch::optim for each replica, over the parameters of a Model, a list of
  /// variables or of ParameterGroups (lockstep/optimizer.h).
  template <class T, class Target, class Options, class Gradients = GradientOptions>
  DistributedOptimizer optimizer(const Target& target, const Options& options,
                                 const Gradients& gradients = {}, Here here = Here::now());

  [[nodiscard]] NonSlotDevices non_slot_devices(const std::vector<Variable>& variables) const;
  /// Creates a variable on the non-slot devices.
  NonSlotVariable non_slot_variable(std::string variable_name, const Tensor& initial,
                                    const std::vector<Variable>& variables = {});

  /// A copy on one device. fn is applied where the value is.
  using FetchFunction = std::function<Tensor(const Tensor&)>;
  Tensor fetch(const Tensor& value, const Device& device = "CPU:0", const FetchFunction& fn = {});
  Tensor fetch(const Variable& value, const Device& device = "CPU:0", const FetchFunction& fn = {},
               Here here = Here::now());
  template <class L>
  Tensor fetch(const Distributed<Tensor, L>& value, const Device& device = "CPU:0",
               const FetchFunction& fn = {}) {
    static_assert(!std::is_same_v<L, locality::PerReplica>,
                  "lockstep: fetch() takes no PerReplica value: which one? reduce() it, or take "
                  "local_results() of it");
    return fetch_component(value.devices(), local_results(value), device, fn);
  }

  /// Completes everything pending in the value. (Nothing is: every verb here has done its work when
  /// it returns.)
  template <class T>
  coll::Work group(const T& value, std::string_view label = {}) {
    static_cast<void>(value);
    return grouped(label);
  }

  [[nodiscard]] detail::StrategyCore& core() const noexcept { return *core_; }
  [[nodiscard]] const std::shared_ptr<detail::StrategyCore>& shared_core() const noexcept {
    return core_;
  }

 protected:
  explicit Strategy(std::shared_ptr<detail::StrategyCore> core);

 private:
  Tensor fetch_component(const DeviceList& devices, const std::vector<Tensor>& values,
                         const Device& device, const FetchFunction& fn);
  coll::Work grouped(std::string_view label);
  [[nodiscard]] std::uint64_t word_from_chief(std::uint64_t word, Here here);
  PerReplica<Tensor> as_tensors(std::vector<Tensor> each) const;
  template <class T, class F>
  T reduce_leaves(const PerReplica<T>& value, F&& reduce_leaf);

  std::shared_ptr<detail::StrategyCore> core_;
};

std::ostream& operator<<(std::ostream& out, const Strategy& strategy);

namespace detail {

Tensor scalar_tensor(const at::Scalar& value);

/// Calls a step function, with the context first if it takes it.
template <class F, class... Args>
decltype(auto) call_step(F& fn, ReplicaContext& replica, Args&&... args) {
  if constexpr (std::is_invocable_v<F&, ReplicaContext&, Args&&...>) {
    return fn(replica, std::forward<Args>(args)...);
  } else if constexpr (std::is_invocable_v<F&, Args&&...>) {
    return fn(std::forward<Args>(args)...);
  } else {
    refuse_step_arguments<F, Args&&...>();
  }
}

template <class T>
std::optional<std::int64_t> global_size_of(const T& argument) {
  if constexpr (requires { argument.global_size(); }) {
    return argument.global_size();
  } else {
    return std::nullopt;
  }
}
/// The size over all replicas of the first distributed batch among the arguments of run().
template <class... Args>
std::optional<std::int64_t> global_size_among(const Args&... args) {
  std::optional<std::int64_t> size;
  ((size = size ? size : global_size_of(args)), ...);
  return size;
}

/// Results of one call each, stored by replica or copy; void leaves nothing.
template <class R>
std::vector<R> taken(std::vector<std::optional<R>>& results) {
  std::vector<R> values;
  values.reserve(results.size());
  for (std::optional<R>& result : results) values.push_back(std::move(*result));
  return values;
}

}  // namespace detail

template <class F, class... Args>
auto Strategy::run(const RunOptions& asked, F&& fn, const Args&... args) {
  RunOptions options = asked;
  if (!options.global_batch_size) options.global_batch_size = detail::global_size_among(args...);
  using R = std::remove_cvref_t<decltype(detail::call_step(fn, std::declval<ReplicaContext&>(),
                                                           detail::select_for_run(args, 0)...))>;
  const auto step = [&](ReplicaContext& replica, [[maybe_unused]] int index) -> decltype(auto) {
    return detail::call_step(fn, replica, detail::select_for_run(args, index)...);
  };
  const auto index_of = [](ReplicaContext& replica) { return detail::local_index(replica); };
  if constexpr (std::is_void_v<R>) {
    detail::run_replicas(*this, options,
                         [&](ReplicaContext& replica) { step(replica, index_of(replica)); });
  } else {
    const detail::SharedDevices& devices = detail::replica_devices(*this);
    std::vector<std::optional<R>> results(devices->size());
    detail::run_replicas(*this, options, [&](ReplicaContext& replica) {
      const int index = index_of(replica);
      results[static_cast<std::size_t>(index)].emplace(step(replica, index));
    });
    return detail::Regroup<R, locality::PerReplica>::from(detail::taken(results), devices);
  }
}

template <class F>
auto Strategy::distribute_values_from_function(F&& fn) {
  using R = std::remove_cvref_t<decltype(fn(ValueContext{}))>;
  detail::require_cross(*this, "distribute_values_from_function");
  const detail::SharedDevices& devices = detail::replica_devices(*this);
  std::vector<R> values;
  for (int i = 0; i < static_cast<int>(devices->size()); ++i) {
    values.push_back(fn(ValueContext{detail::first_replica(*this) + i, num_replicas_in_sync()}));
  }
  return detail::Regroup<R, locality::PerReplica>::from(std::move(values), devices);
}

template <detail::Number T>
T Strategy::from_chief(T value, Here here) {
  std::uint64_t word = 0;
  std::memcpy(&word, &value, sizeof(value));
  word = word_from_chief(word, here);
  std::memcpy(&value, &word, sizeof(value));
  return value;
}

template <class T, class F>
T Strategy::reduce_leaves(const PerReplica<T>& value, F&& reduce_leaf) {
  std::vector<std::vector<Tensor>> each;
  for (int i = 0; i < value.size(); ++i) each.push_back(detail::tensors_of(value[i]));
  std::vector<Tensor> reduced;
  for (std::size_t k = 0; k < each[0].size(); ++k) {
    std::vector<Tensor> leaf;
    for (const auto& tensors : each) leaf.push_back(tensors.at(k));
    reduced.push_back(reduce_leaf(as_tensors(std::move(leaf))));
  }
  return detail::with_tensors(T(value[0]), reduced);
}

template <class T>
auto Strategy::reduce(ReduceOp op, const PerReplica<T>& value, Here here) {
  if constexpr (std::is_arithmetic_v<T>) {
    std::vector<Tensor> each;
    for (int i = 0; i < value.size(); ++i) each.push_back(detail::scalar_tensor(value[i]));
    return reduce(op, as_tensors(std::move(each)), here);
  } else {
    return reduce_leaves(value,
                         [&](const PerReplica<Tensor>& leaf) { return reduce(op, leaf, here); });
  }
}

template <class T>
auto Strategy::reduce(ReduceOp op, const PerReplica<T>& value, Along axis, Here here) {
  static_assert(!std::is_arithmetic_v<T>,
                "lockstep: reduce(op, value, along(axis)) of a number of each replica: it has no "
                "axis; say reduce(op, value)");
  return reduce_leaves(
      value, [&](const PerReplica<Tensor>& leaf) { return reduce(op, leaf, axis, here); });
}

template <class F, class... Args>
auto Strategy::update(const Variable& variable, F&& fn, const Args&... args) {
  const auto call = [&](const detail::UpdateTarget& target) -> decltype(auto) {
    Component component = variable[target.index];
    return fn(component, detail::select_for_update<locality::Colocated>(args, target)...);
  };
  using R = std::remove_cvref_t<decltype(call(std::declval<const detail::UpdateTarget&>()))>;
  if constexpr (std::is_void_v<R>) {
    detail::run_updates(*this, "update", variable, call);
  } else {
    std::vector<std::optional<R>> results(static_cast<std::size_t>(variable.size()));
    detail::run_updates(*this, "update", variable, [&](const detail::UpdateTarget& target) {
      results[static_cast<std::size_t>(target.index)].emplace(call(target));
    });
    return detail::Regroup<R, locality::Colocated>::from(
        detail::taken(results), std::make_shared<const DeviceList>(variable.devices()));
  }
}

template <class F, class... Args>
void Strategy::batch_update(const std::vector<Variable>& variables, F&& fn,
                            const std::vector<Args>&... args) {
  const auto call = [&](std::size_t k, const detail::UpdateTarget& target) {
    Component component = variables[k][target.index];
    using R =
        decltype(fn(component, detail::select_for_update<locality::Colocated>(args[k], target)...));
    static_assert(std::is_void_v<R>,
                  "lockstep: the function of batch_update() gives nothing back; use update()");
    fn(component, detail::select_for_update<locality::Colocated>(args[k], target)...);
  };
  detail::run_batch_update(*this, variables, {args.size()...}, call);
}

template <class F, class... Args>
auto Strategy::update_non_slot(const NonSlotDevices& where, F&& fn, const Args&... args) {
  const auto call = [&](const detail::UpdateTarget& target) -> decltype(auto) {
    return fn(detail::select_for_update<locality::NonSlot>(args, target)...);
  };
  using R = std::remove_cvref_t<decltype(call(std::declval<const detail::UpdateTarget&>()))>;
  if constexpr (std::is_void_v<R>) {
    detail::run_updates(*this, "update_non_slot", where.devices, call);
  } else {
    std::vector<std::optional<R>> results(where.devices.size());
    detail::run_updates(*this, "update_non_slot", where.devices,
                        [&](const detail::UpdateTarget& target) {
                          results[static_cast<std::size_t>(target.index)].emplace(call(target));
                        });
    return detail::Regroup<R, locality::NonSlot>::from(
        detail::taken(results), std::make_shared<const DeviceList>(where.devices));
  }
}

}  // namespace lockstep
