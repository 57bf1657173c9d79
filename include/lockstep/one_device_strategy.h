// OneDeviceStrategy: a single replica on a given device. The step function runs on the caller's
// thread.
#pragma once

#include "lockstep/mirrored_strategy.h"

namespace lockstep {

class OneDeviceStrategy : public Strategy {
 public:
  explicit OneDeviceStrategy(const Device& device, const ReplicaOptions& options = {},
                             const std::optional<DeviceTable>& device_table = {});
};

}  // namespace lockstep
