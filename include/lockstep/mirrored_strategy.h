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
  int threads_per_replica = 1;  // libtorch's and BLAS's; another number gives other bits
  /// Seeds the generator of each replica, together with the replica's id. Default: the seed of
  /// libtorch's default generator (torch::manual_seed) when the strategy is made.
  std::optional<std::uint64_t> seed = {};
  bool pin = true;  // replicas to cores of their own, if there are enough
  /// The allocator of the whole process keeps what a step frees for the next one: fewer page
  /// faults, up to a fifth of a step's time. Memory of a peak stays with the process.
  bool keep_freed_memory = true;
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
