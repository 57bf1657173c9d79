// CollectiveAllReduceStrategy: a MultiWorkerMirroredStrategy under its first name, which is made
// first and told afterwards who the workers are.
//
//   CollectiveAllReduceStrategy strategy(2);                // two GPUs; without a number, the CPU
//   strategy.configure(NoSession{}, cluster, "worker", 1);  // now one of several workers
//   auto scope = strategy.scope();                          // waits for the others
//   auto losses = strategy.experimental_run(step, input);
//
// Until it is configured the strategy is local; configure() alone says who takes part, and what
// TF_CONFIG says is ignored. It joins the others in experimental_initialize() or with the first
// call that needs replicas, whichever comes first, and waits for all of them;
// num_replicas_in_sync() counts them from configure() on. experimental_finalize() waits for all of
// them again, and leaves.
//
// What each verb does is said in strategy.h; here names, arguments and results are translated. One
// thread configures and joins; from then on it is used as any Strategy. Verbs of input need
// lockstep/input_iterators.h.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/compat.h"

namespace lockstep {

class CollectiveAllReduceStrategy {
 public:
  /// One replica on each of so many GPUs, or one on CPU:0. The options may give the devices
  /// instead, but no cluster resolver. InvalidUsage for wrong values, ConfigError for a device that
  /// does not exist.
  explicit CollectiveAllReduceStrategy(int num_gpus_per_worker = 0,
                                       MultiWorkerOptions options = {});
  CollectiveAllReduceStrategy(CollectiveAllReduceStrategy&&) noexcept;
  CollectiveAllReduceStrategy& operator=(CollectiveAllReduceStrategy&&) noexcept;
  CollectiveAllReduceStrategy(const CollectiveAllReduceStrategy&) = delete;
  CollectiveAllReduceStrategy& operator=(const CollectiveAllReduceStrategy&) = delete;
  /// Leaves without waiting: workers that wait for this one throw PeerLost.
  ~CollectiveAllReduceStrategy();

  /// Says who the workers are, before the first use. An empty cluster, or the same task again,
  /// changes nothing. InvalidUsage without a type or an id, for a type that is neither chief nor
  /// worker, for another task than before and after the first use; ConfigError for a task that the
  /// cluster does not have, as is every task of a cluster without workers.
  void configure(NoSession session_config = {}, const ClusterSpec& cluster_spec = {},
                 const std::optional<std::string>& task_type = {}, std::optional<int> task_id = {});
  /// The same, and what update_config_proto() makes of the configuration.
  ConfigProto configure(const ConfigProto& session_config, const ClusterSpec& cluster_spec = {},
                        const std::optional<std::string>& task_type = {},
                        std::optional<int> task_id = {});

  /// Joins and leaves the cluster; a second time, and without a cluster, they do nothing. There is
  /// nothing left to be run. After leaving, every use is InvalidUsage until it is joined anew.
  /// InvalidUsage inside of scope().
  std::vector<coll::Work> experimental_initialize();
  std::vector<coll::Work> experimental_finalize();

  [[nodiscard]] StrategyExtended extended() const { return StrategyExtended(strategy()); }
  /// Devices of this worker times workers.
  [[nodiscard]] int num_replicas_in_sync() const noexcept;
  /// Of the chief, which is worker 0 if there is none by that name, and of a local strategy.
  [[nodiscard]] bool should_checkpoint() const;
  [[nodiscard]] bool should_save_summary() const { return should_checkpoint(); }

  Scope scope() const { return strategy().scope(); }

  /// fn(batch) with the iterator's next batch; without an iterator, fn().
  template <class F, class T>
  auto experimental_run(F&& fn, InputIterator<T>& input_iterator) const {
    return strategy().experimental_run(fn, input_iterator);
  }
  template <class F>
  auto experimental_run(F&& fn) const {
    return strategy().run(fn);
  }
  template <class V>
  auto reduce(ReduceOp op, const V& value, Here here = Here::now()) const {
    return strategy().reduce(op, value, here);
  }
  template <class T, class B>
  auto make_dataset_iterator(const Dataset<T, B>& dataset, Here here = Here::now()) const {
    return strategy().make_dataset_iterator(dataset, {}, here);
  }
  template <class F>
  auto make_input_fn_iterator(F&& input_fn,
                              InputReplicationMode mode = InputReplicationMode::per_worker,
                              Here here = Here::now()) const {
    return strategy().make_input_fn_iterator(input_fn, mode, {}, here);
  }

  /// A changed copy.
  [[nodiscard]] ConfigProto update_config_proto(const ConfigProto& config_proto) const;

  /// The same devices, options and task, with threads and variables of its own. One that is
  /// configured joins first: the copy takes part through the same membership.
  [[nodiscard]] CollectiveAllReduceStrategy clone() const;

 private:
  struct Impl;
  explicit CollectiveAllReduceStrategy(std::unique_ptr<Impl> impl) noexcept;
  /// Joins if need be.
  [[nodiscard]] Strategy& strategy() const;

  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
