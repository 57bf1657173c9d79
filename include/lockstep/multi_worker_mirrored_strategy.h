// MultiWorkerMirroredStrategy: one replica on each device of each of several processes (workers),
// variables mirrored on all of them.
//
//   MultiWorkerMirroredStrategy strategy;          // the cluster of TF_CONFIG or of the launcher
//   auto net = strategy.create<Net>();             // the chief's initial values, on every worker
//
// Every worker runs the same program. The constructor waits until all of them have come, and names
// those that have not. Without a cluster, and for an evaluator, the strategy is local: one worker.
// A variable's initial value is the chief's; reduce, gather and the gradients of an optimizer go
// over the replicas of all workers, in the fixed order; run() runs the replicas of this process.
//
// An exception that leaves a step function ends the group: the other workers throw PeerLost with
// its text. So does the death of a worker, naming it. With the strategy's end the worker leaves the
// group, also if variables or models of it live on. A new strategy in the same process joins anew.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/cluster_resolver.h"
#include "lockstep/coll/join.h"
#include "lockstep/communication_options.h"
#include "lockstep/mirrored_strategy.h"

namespace lockstep {

struct MultiWorkerOptions {
  /// What carries the collectives, packing and timeouts.
  Communication communication = Communication::automatic;
  /// Who the workers are. Default: what the environment says (docs/cluster.md).
  std::optional<AnyClusterResolver> cluster_resolver = {};
  /// Of this worker; the same number on each. Default: as many GPUs as a cluster_resolver given
  /// here says that a task has, else CPU:0. TF_CONFIG and launchers do not say: all GPUs, else
  /// CPU:0.
  DeviceList devices = {};
  ReplicaOptions replicas = {};
  PackBytes bytes_per_pack = 0;
  TimeoutSeconds timeout_seconds = {};
  /// For all workers to arrive.
  std::chrono::nanoseconds join_timeout = std::chrono::seconds(60);
  coll::Liveness liveness = {};
  /// Workers whose arithmetic differs (libraries, processors, threads) are an error, not a warning.
  bool require_same_bits = false;
  std::optional<DeviceTable> device_table = {};
  /// A group that exists already, in place of joining one (lockstep/testing.h); the strategy takes
  /// it over.
  std::shared_ptr<coll::Session> session = {};
};

class MultiWorkerMirroredStrategy : public Strategy {
 public:
  /// ConfigError for a cluster or a task that cannot be (a ps task: branch on the resolver's
  /// task_type() before making a strategy); otherwise as coll::join().
  explicit MultiWorkerMirroredStrategy(const MultiWorkerOptions& options = {});

  /// The one given, or that of the environment.
  [[nodiscard]] const ClusterResolver& cluster_resolver() const noexcept { return *resolver_; }
  [[nodiscard]] Communication communication() const noexcept { return communication_; }
  [[nodiscard]] int num_workers() const noexcept;
  /// Among the workers; the chief is 0. A local strategy, and an evaluator's, is its own chief.
  [[nodiscard]] int worker_index() const noexcept;
  [[nodiscard]] bool should_checkpoint() const noexcept { return is_chief(); }
  [[nodiscard]] bool should_save_summary() const noexcept { return is_chief(); }
  /// What connects the workers: "local", "shared memory", "tcp", ...
  [[nodiscard]] std::string transport() const;

 private:
  MultiWorkerMirroredStrategy(const MultiWorkerOptions& options, AnyClusterResolver resolver);

  AnyClusterResolver resolver_;
  Communication communication_;
};

/// The older name.
using ExperimentalMultiWorkerMirroredStrategy = MultiWorkerMirroredStrategy;

}  // namespace lockstep
