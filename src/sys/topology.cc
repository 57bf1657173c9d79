#include "sys/topology.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <map>
#include <memory>
#include <sstream>

#include "base/gate.h"
#include "lockstep/error.h"
#include "sys/cgroup.h"
#include "sys/os_error.h"

namespace lockstep::sys {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using TopologyPtr = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, DestroyTopology>;

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using BitmapPtr = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, FreeBitmap>;

TopologyPtr load() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) raise(os_error("cannot look at the processors", errno));
  TopologyPtr topology(raw);
  if (hwloc_topology_load(raw) != 0) raise(os_error("cannot look at the processors", errno));
  return topology;
}

// The union over the threads of the process: a pinned one does not narrow it.
BitmapPtr process_mask(hwloc_topology_t topology) {
  BitmapPtr mask(hwloc_bitmap_alloc());
  if (hwloc_get_cpubind(topology, mask.get(), HWLOC_CPUBIND_PROCESS) != 0) {
    hwloc_bitmap_copy(mask.get(), hwloc_topology_get_allowed_cpuset(topology));
  }
  return mask;
}

CpuSet members(hwloc_const_bitmap_t bitmap) {
  CpuSet cpus;
  for (int cpu = hwloc_bitmap_first(bitmap); cpu >= 0; cpu = hwloc_bitmap_next(bitmap, cpu)) {
    cpus.push_back(cpu);
  }
  return cpus;
}

// Version 2: "max 100000" or "150000 100000".
double quota_v2(const std::filesystem::path& directory) {
  std::istringstream text(read_text(directory / "cpu.max"));
  double quota = 0;
  double period = 0;
  return text >> quota >> period && period > 0 ? quota / period : kUnlimited;
}

// Version 1: -1 is no limit.
double quota_v1(const std::filesystem::path& directory) {
  const auto quota = number_in(directory / "cpu.cfs_quota_us");
  const auto period = number_in(directory / "cpu.cfs_period_us");
  return quota && period && *quota > 0 && *period > 0 ? *quota / *period : kUnlimited;
}

}  // namespace

double cpu_quota(const std::string& memberships, const std::string& mount) {
  return least_limit(memberships, mount, "cpu", quota_v1, quota_v2);
}

Topology Topology::read() {
  const TopologyPtr topology = load();
  const BitmapPtr mask = process_mask(topology.get());
  const BitmapPtr usable(hwloc_bitmap_alloc());
  std::map<unsigned, NumaNode> nodes;  // by the operating system's number
  // A machine without core objects (some virtual ones) has hardware threads at least.
  const int depth = hwloc_get_type_or_below_depth(topology.get(), HWLOC_OBJ_CORE);
  hwloc_obj_t core = nullptr;
  while ((core = hwloc_get_next_obj_by_depth(topology.get(), depth, core)) != nullptr) {
    hwloc_bitmap_and(usable.get(), core->cpuset, mask.get());
    if (hwloc_bitmap_iszero(usable.get()) != 0) continue;
    const int node = core->nodeset != nullptr ? hwloc_bitmap_first(core->nodeset) : 0;
    nodes[static_cast<unsigned>(std::max(node, 0))].cores.push_back(members(usable.get()));
  }
  std::vector<NumaNode> all;
  for (auto& [number, node] : nodes) all.push_back(std::move(node));
  return {std::move(all), cpu_quota(read_text("/proc/self/cgroup"))};
}

int Topology::usable_cores() const noexcept {
  std::size_t cores = 0;
  for (const NumaNode& node : nodes_) cores += node.cores.size();
  // Part of a core does not carry a lane.
  const double paid = std::min(quota_, static_cast<double>(cores));
  return std::max(static_cast<int>(paid), 1);
}

std::vector<CpuSet> Topology::cores_for(const LaneCores& wanted) const {
  if (wanted.lanes <= 0 || wanted.threads <= 0 || wanted.before < 0) return {};
  std::vector<CpuSet> all;
  for (const NumaNode& node : nodes_) all.insert(all.end(), node.cores.begin(), node.cores.end());
  // A process without a usable core counts as having one.
  const auto there = std::min<std::int64_t>(usable_cores(), std::ssize(all));
  const auto needed = std::int64_t{wanted.lanes} * wanted.threads;
  if (needed > there - wanted.before) return {};
  std::vector<CpuSet> lanes(static_cast<std::size_t>(wanted.lanes));
  auto core = all.begin() + wanted.before;
  for (CpuSet& lane : lanes) {
    for (int i = 0; i < wanted.threads; ++i, ++core)
      lane.insert(lane.end(), core->begin(), core->end());
    std::sort(lane.begin(), lane.end());
  }
  return lanes;
}

int usable_cores() {
  static const int cores = [] {
    try {
      return Topology::read().usable_cores();
    } catch (const Error&) {
      return lockstep::usable_cores();
    }
  }();
  return cores;
}

int usable_processors(int in_mask, double quota) noexcept {
  return std::max(static_cast<int>(std::min(quota, static_cast<double>(in_mask))), 1);
}

int usable_processors() { return usable_processors(lockstep::usable_cores(), own_cpu_quota()); }

double own_cpu_quota() {
  static const double quota = cpu_quota(read_text("/proc/self/cgroup"));
  return quota;
}

Status pin_this_thread(const CpuSet& cpus) {
  struct FreeSet {
    void operator()(cpu_set_t* set) const { CPU_FREE(set); }
  };
  const int count = cpus.empty() ? 1 : *std::max_element(cpus.begin(), cpus.end()) + 1;
  const std::unique_ptr<cpu_set_t, FreeSet> set(CPU_ALLOC(count));
  const std::size_t bytes = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(bytes, set.get());
  for (const int cpu : cpus) CPU_SET_S(cpu, bytes, set.get());
  if (sched_setaffinity(0, bytes, set.get()) == 0) return {};
  return os_error(fmt::format("cannot pin a thread to processors {}", cpus), errno);
}

}  // namespace lockstep::sys
