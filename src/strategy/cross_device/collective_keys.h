// The numbers that name a collective: which group of devices, and the how-manieth of that group.
// Workers that make the same calls in the same order get the same numbers, without asking each
// other; messages about an operation carry them.
//
// Thread-safe.
#pragma once

#include <map>
#include <utility>

#include "base/mutex.h"
#include "lockstep/value.h"

namespace lockstep::detail {

class CollectiveKeys {
 public:
  /// From 1, one for each set of devices, in whatever order they are given.
  int group_key(DeviceList devices);
  /// From 100, for each device of each group. InvalidUsage for a group or a device of it that was
  /// never given.
  int next_instance_key(int group, const Device& device);

 private:
  Mutex mutex_;
  std::map<DeviceList, int> groups_ GUARDED_BY(mutex_);
  std::map<std::pair<int, Device>, int> instances_ GUARDED_BY(mutex_);
};

}  // namespace lockstep::detail
