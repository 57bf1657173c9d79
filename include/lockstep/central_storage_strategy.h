// CentralStorageStrategy: a replica on each compute device, variables on one device for all. A step
// function reads the one tensor; writing aggregates the replicas' values and writes it once.
#pragma once

#include "lockstep/mirrored_strategy.h"

namespace lockstep {

struct CentralStorageOptions {
  DeviceList compute_devices = {};              // default: all GPUs, else CPU:0
  std::optional<Device> parameter_device = {};  // default: the only compute device, else CPU:0
  std::shared_ptr<CrossDeviceOps> cross_device_ops = {};  // default: ReductionToOneDevice
  ReplicaOptions replicas = {};
  std::optional<DeviceTable> device_table = {};  // default: this machine's
};

class CentralStorageStrategy : public Strategy {
 public:
  explicit CentralStorageStrategy(CentralStorageOptions options = {});
};

}  // namespace lockstep
