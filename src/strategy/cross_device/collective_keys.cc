#include "strategy/cross_device/collective_keys.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/error.h"

namespace lockstep::detail {

int CollectiveKeys::group_key(DeviceList devices) {
  constexpr int kFirstInstance = 100;
  std::sort(devices.begin(), devices.end());
  const MutexLock lock(mutex_);
  const auto [group, is_new] = groups_.try_emplace(devices, static_cast<int>(groups_.size()) + 1);
  if (is_new) {
    for (const Device& device : devices) instances_[{group->second, device}] = kFirstInstance;
  }
  return group->second;
}

int CollectiveKeys::next_instance_key(int group, const Device& device) {
  const MutexLock lock(mutex_);
  const auto found = instances_.find({group, device});
  if (found == instances_.end()) {
    throw InvalidUsage(fmt::format("group {} has no device {}", group, device.str()));
  }
  return found->second++;
}

}  // namespace lockstep::detail
