// MirroredStrategy: one replica on each device of this machine, variables mirrored on all of them.
//
//   MirroredStrategy strategy({.devices = {"CPU:0", "CPU:1"}});
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "lockstep/device_table.h"
#include "lockstep/strategy.h"

namespace lockstep {

/// What every strategy with replicas of its own can be told.
struct ReplicaOptions {
  Execution execution = Execution::concurrent;
  /// Threads that libtorch and its BLAS take inside one operation of a replica. Another number
  /// gives other bits. Default: 1 if the job has several replicas, in all its workers together. The
  /// only replica of a job takes OMP_NUM_THREADS or at::set_num_threads() if you have set them,
  /// else the cores that this process may use. See docs/threads.md.
  std::optional<int> threads_per_replica = {};
  /// Seeds the generator of each replica, together with the replica's id. Default: the seed of
  /// libtorch's default generator (torch::manual_seed) when the strategy is made.
  std::optional<std::uint64_t> seed = {};
  /// Puts the threads of all replicas but the first of this process on cores of their own, one for
  /// each of their threads; a warning if there are too few, or another job has pinned there.
  /// Threads that a step function starts there inherit those cores. See docs/threads.md.
  bool pin = false;
};

struct MirroredOptions {
  DeviceList devices = {};                                // default: all GPUs, else CPU:0
  std::shared_ptr<CrossDeviceOps> cross_device_ops = {};  // default: ReductionToOneDevice
  ReplicaOptions replicas = {};
  std::optional<DeviceTable> device_table = {};  // default: this machine's
};

class MirroredStrategy : public Strategy {
 public:
  /// InvalidUsage for a device given twice, ConfigError for one that does not exist.
  explicit MirroredStrategy(MirroredOptions options = {});
  /// One logical CPU device for each NUMA node of this machine.
  static MirroredOptions per_numa_node();
};

}  // namespace lockstep
