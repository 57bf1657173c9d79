// Which op suits which devices.
#include <algorithm>
#include <array>

#include "lockstep/all_reduce_cross_device_ops.h"

namespace lockstep {

namespace {

/// Which GPUs each of a DGX-1's eight reaches directly.
constexpr std::array<std::array<int, 4>, 8> kDgx1Links = {{{1, 2, 3, 4},
                                                           {0, 2, 3, 5},
                                                           {0, 1, 3, 6},
                                                           {0, 1, 2, 7},
                                                           {0, 5, 6, 7},
                                                           {1, 4, 6, 7},
                                                           {2, 4, 5, 7},
                                                           {3, 4, 5, 6}}};

bool linked_as_dgx1(const std::vector<std::vector<int>>& links) {
  if (links.size() != kDgx1Links.size()) return false;
  for (std::size_t i = 0; i < links.size(); ++i) {
    std::vector<int> others = links[i];
    std::erase(others, static_cast<int>(i));
    std::sort(others.begin(), others.end());
    if (!std::equal(others.begin(), others.end(), kDgx1Links[i].begin(), kDgx1Links[i].end())) {
      return false;
    }
  }
  return true;
}

bool all_are_gpus(const DeviceList& devices) {
  return std::all_of(devices.begin(), devices.end(),
                     [](const Device& device) { return device.type() == "GPU"; });
}

}  // namespace

std::shared_ptr<CrossDeviceOps> default_cross_device_ops(const DeviceList& devices,
                                                         const DeviceTable& table) {
  const bool real = table.gpu_kind == DeviceTable::Gpus::real;
  if (!all_are_gpus(devices) || !real) return std::make_shared<ReductionToOneDevice>();
  return std::make_shared<NcclAllReduce>(1);
}

std::shared_ptr<CrossDeviceOps> choose_cross_device_ops(const DeviceList& devices,
                                                        const DeviceTable& table) {
  const bool all_there = std::all_of(devices.begin(), devices.end(),
                                     [&](const Device& device) { return table.contains(device); });
  if (!all_there || !all_are_gpus(devices)) return std::make_shared<ReductionToOneDevice>();
  if (devices.size() >= kDgx1Links.size() && linked_as_dgx1(table.links)) {
    return std::make_shared<HierarchicalCopyAllReduce>(static_cast<int>(devices.size()));
  }
  return std::make_shared<NcclAllReduce>(1);
}

}  // namespace lockstep
