// StrategyCore: what a strategy is made of, shared with the variables it created, which may outlive
// the Strategy object.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "lockstep/mirrored_strategy.h"
#include "strategy/lanes.h"
#include "strategy/thread_context.h"
#include "strategy/workers.h"
#include "sys/core_lease.h"
#include "tensor/placed_memory.h"
#include "tensor/randomness.h"
#include "tensor/result_memory.h"

namespace lockstep::detail {

class Run;
class OptimizerList;  // of the train layer

/// Where variables live.
enum class Placement {
  plain,     // no strategy: one tensor
  mirrored,  // a copy on each worker device
  central,   // one tensor for all replicas
};

struct CoreOptions {
  std::string name;
  DeviceList worker_devices;
  DeviceList parameter_devices;
  Placement placement = Placement::mirrored;
  std::shared_ptr<CrossDeviceOps> cross_device_ops;
  bool chose_ops = false;  // cross_device_ops is the default, not the user's
  ReplicaOptions replicas;
  DeviceTable device_table;
  std::shared_ptr<Workers> workers;  // null: this process is alone
};

class StrategyCore : public std::enable_shared_from_this<StrategyCore> {
 public:
  explicit StrategyCore(CoreOptions options);
  ~StrategyCore();
  StrategyCore(const StrategyCore&) = delete;
  StrategyCore& operator=(const StrategyCore&) = delete;

  [[nodiscard]] const CoreOptions& options() const noexcept { return options_; }
  [[nodiscard]] const std::string& name() const noexcept { return options_.name; }
  /// Of this process.
  [[nodiscard]] int replicas() const noexcept {
    return static_cast<int>(options_.worker_devices.size());
  }
  /// Of all workers, and the number of this process's first among them.
  [[nodiscard]] int replicas_in_sync() const noexcept {
    return options_.workers ? options_.workers->replicas() : replicas();
  }
  /// Inside an operation; 0 for the default strategy, which changes nothing.
  [[nodiscard]] int threads_per_replica() const noexcept { return threads_per_replica_; }
  [[nodiscard]] int first_replica() const noexcept {
    return options_.workers ? options_.workers->first_replica() : 0;
  }
  /// Null unless there are several.
  [[nodiscard]] Workers* workers() const noexcept { return options_.workers.get(); }
  [[nodiscard]] const SharedDevices& devices() const noexcept { return devices_; }
  [[nodiscard]] CrossDeviceOps& ops() const noexcept { return *options_.cross_device_ops; }
  /// Whether the user has given them: then they sum gradients, too.
  [[nodiscard]] bool has_users_ops() const noexcept {
    return !options_.chose_ops && workers() == nullptr;
  }
  /// Looks at the links between GPUs, unless the user has given ops. Not while something runs.
  void choose_ops_by_links();
  /// Only the strategy that is current where no other is.
  [[nodiscard]] bool is_default() const noexcept { return options_.placement == Placement::plain; }

  /// The Strategy object; InvalidUsage after it is gone.
  [[nodiscard]] Strategy& strategy() const;
  void set_strategy(Strategy* strategy) noexcept { strategy_ = strategy; }
  [[nodiscard]] bool is_gone() const noexcept { return strategy_.load() == nullptr; }

  /// Started with the first use.
  Lanes& lanes();
  Leadership& leadership() noexcept { return leadership_; }
  /// Of all generators, those of optimizers included; the same on all workers.
  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }
  /// Starts all generators over. By the thread that has the turn, while no replica computes.
  void reseed(std::uint64_t seed);
  tensor::ReplicaGenerator& generator(int replica) {
    return generators_[static_cast<std::size_t>(replica)];
  }

  tensor::ResultMemory& result_memory() noexcept { return result_memory_; }
  /// Where large gradients lie, if this process's memory is tuned (lockstep/process_memory.h): in
  /// the workers' memory, which those of one host read in place; or, of several replicas in a
  /// process that is alone, in blocks that are kept. Null if there is neither.
  [[nodiscard]] tensor::PlacedMemory* placed_memory() const noexcept {
    return placed_memory_.get();
  }

  /// Runs work(lane) on all lanes together, in cross-replica context; inline with one replica.
  void on_lanes(const std::function<void(int)>& work);

  /// The optimizers made by this strategy; null before the first one.
  std::shared_ptr<OptimizerList>& optimizers() noexcept { return optimizers_; }

  void set_last_errors(std::vector<std::exception_ptr> errors);
  [[nodiscard]] std::vector<std::exception_ptr> last_errors() const;

 private:
  /// Of the lanes, one set each; empty: not pinned.
  std::vector<sys::CpuSet> cores_to_pin() REQUIRES(mutex_);

  CoreOptions options_;
  int threads_per_replica_ = 0;
  SharedDevices devices_;
  std::atomic<Strategy*> strategy_ = nullptr;
  std::uint64_t seed_ = 0;
  std::vector<tensor::ReplicaGenerator> generators_;
  std::shared_ptr<OptimizerList> optimizers_;
  tensor::ResultMemory result_memory_;
  std::unique_ptr<tensor::PlacedMemory> placed_memory_;
  Leadership leadership_;
  mutable Mutex mutex_;
  std::optional<sys::CoreLease> leased_cores_ GUARDED_BY(mutex_);  // of lanes_, if pinned
  std::unique_ptr<Lanes> lanes_ GUARDED_BY(mutex_);
  std::vector<std::exception_ptr> last_errors_ GUARDED_BY(mutex_);
};

/// A thread's turn with a strategy, for the length of a call: runs, updates and optimizer steps of
/// other threads wait. A thread may take it again. The default strategy has no turns: code that
/// knows no strategy stays concurrent.
class Turn {
 public:
  explicit Turn(StrategyCore& core, Deadline deadline = Deadline::never())
      : leadership_(core.is_default() ? nullptr : &core.leadership()) {
    if (leadership_ != nullptr) leadership_->take(core.name(), deadline);
  }
  ~Turn() {
    if (leadership_ != nullptr) leadership_->release();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Leadership* leadership_;  // null: there are no turns
};

/// What stands behind a ReplicaContext.
struct ReplicaState {
  StrategyCore* core;
  int index;  // among this process's replicas
  int id;     // among those of all workers
  Device device;
  Run* run;  // nullptr: the default strategy's replica, which is nobody's run
  std::thread::id thread;
  std::optional<std::int64_t> global_batch_size;
};

/// The default strategy, and its one replica.
StrategyCore& default_core();
ReplicaContext& default_replica();

}  // namespace lockstep::detail
