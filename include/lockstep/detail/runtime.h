// What the templates of strategy.h and replica_context.h stand on: running a body once for each
// replica, meeting of all replicas, running a body once for each copy of a variable.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <typeinfo>
#include <variant>
#include <vector>

#include "lockstep/detail/select.h"
#include "lockstep/here.h"

namespace lockstep {
class Strategy;
class ReplicaContext;
struct RunOptions;
}  // namespace lockstep

namespace lockstep::detail {

class StrategyCore;

/// Runs body on every local replica, each in its own context; returns when all are over. Rethrows
/// the first exception in time.
void run_replicas(Strategy& strategy, const RunOptions& options,
                  const std::function<void(ReplicaContext&)>& body);

/// One replica's part in a merge_call: `frame` holds its arguments and takes its result.
struct MergeCall {
  using Run = void (*)(Strategy& strategy, const std::vector<void*>& frames);
  Here here;
  Run run;
  const std::type_info* callable;
  void* frame;
};
/// Meets with the other replicas; replica 0's call.run is executed with the frames of all.
void merge(ReplicaContext& replica, const MergeCall& call);

/// Runs body for each copy of a variable (each device of a list), each on its replica's lane.
void run_updates(Strategy& strategy, const char* method, const Variable& variable,
                 const std::function<void(const UpdateTarget&)>& body);
void run_updates(Strategy& strategy, const char* method, const DeviceList& devices,
                 const std::function<void(const UpdateTarget&)>& body);
/// Runs body(k, copy) for each copy of each variable k; those that live on the same devices share
/// one hand-over. `lengths` are those of the lists of arguments.
void run_batch_update(Strategy& strategy, const std::vector<Variable>& variables,
                      const std::vector<std::size_t>& lengths,
                      const std::function<void(std::size_t, const UpdateTarget&)>& body);

/// Position among this process's replicas.
int local_index(const ReplicaContext& replica);
/// InvalidUsage unless the calling thread may use the cross-replica verbs of the strategy.
void require_cross(Strategy& strategy, const char* method);

/// The devices that results of run() live on.
const SharedDevices& replica_devices(Strategy& strategy);
/// The number of this process's first replica among those of all workers.
int first_replica(Strategy& strategy);

/// Calls a merge function, with the strategy first if it takes it.
template <class F, class... Args>
decltype(auto) call_merge(F& fn, Strategy& strategy, Args&... args) {
  if constexpr (std::is_invocable_v<F&, Strategy&, Args&...>) {
    return fn(strategy, args...);
  } else {
    static_assert(std::is_invocable_v<F&, Args&...>,
                  "lockstep: a merge function takes (Strategy&, values...), where a replica's own "
                  "T arrives as PerReplica<T> and an agreed T as Mirrored<T>");
    return fn(args...);
  }
}

/// What a replica takes away of a merge function's result; monostate of none.
template <class R>
struct MergeResult {
  using type = decltype(select_from_merge(std::declval<const R&>(), 0));
};
template <>
struct MergeResult<void> {
  using type = std::monostate;
};

/// Frame of merge_call(fn, args...): what a replica brings and what it takes away.
template <class F, class... Args>
struct MergeFrame {
  using Merged = std::tuple<Regrouped<Args, locality::PerReplica>...>;
  using Raw = decltype(call_merge(std::declval<F&>(), std::declval<Strategy&>(),
                                  std::declval<Regrouped<Args, locality::PerReplica>&>()...));
  static constexpr bool kNothing = std::is_void_v<Raw>;
  using Result = typename MergeResult<std::remove_cvref_t<Raw>>::type;

  F* fn;
  std::tuple<Args...> args;
  std::optional<Result> result;

  /// Runs replica 0's function on the arguments of all, and hands every replica its result.
  static void run(Strategy& strategy, const std::vector<void*>& frames) {
    std::vector<std::tuple<Args...>> each;
    each.reserve(frames.size());
    for (void* frame : frames) each.push_back(std::move(static_cast<MergeFrame*>(frame)->args));
    Merged merged = Regroup<std::tuple<Args...>, locality::PerReplica>::from(
        std::move(each), replica_devices(strategy));
    F& fn = *static_cast<MergeFrame*>(frames[0])->fn;
    const auto call = [&](auto&... values) -> decltype(auto) {
      return call_merge(fn, strategy, values...);
    };
    if constexpr (kNothing) {
      std::apply(call, merged);
    } else {
      const std::remove_cvref_t<Raw> result = std::apply(call, merged);
      for (std::size_t i = 0; i < frames.size(); ++i) {
        static_cast<MergeFrame*>(frames[i])->result.emplace(
            select_from_merge(result, static_cast<int>(i)));
      }
    }
  }
};

}  // namespace lockstep::detail
