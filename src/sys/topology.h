// Topology: the cores this process may use, and which of them its lanes are pinned to.
//
// "May use" means the affinity mask of the process, and no more cores than the cgroup's quota pays
// for. A lane of T threads gets T cores of its own, neighbours next to each other; the hardware
// threads of a core stay together. Pinning is for lanes that have their cores to themselves: if
// there are too few, no lane is pinned.
//
//   const auto cores = Topology::read().cores_for({.lanes = 2, .threads = 4, .before = 8});
//   if (!cores.empty()) status = pin_this_thread(cores[i]);          // on lane i
//
// A value. The mask of the process is the union of its threads' masks, so pinned lanes do not
// narrow what is read later, as long as one thread is not pinned.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace lockstep::sys {

/// Logical processors by the operating system's numbers, ascending.
using CpuSet = std::vector<int>;

/// Lanes that want cores of their own.
struct LaneCores {
  int lanes = 1;
  int threads = 1;  // of each lane
  int before = 0;   // cores that other ranks of this host have
};

struct NumaNode {
  std::vector<CpuSet> cores;
};

class Topology {
 public:
  /// `quota`: how many cores the process may keep busy at a time; infinity for no limit.
  Topology(std::vector<NumaNode> nodes, double quota) : nodes_(std::move(nodes)), quota_(quota) {}

  /// This process's. SystemError if the machine cannot be looked at.
  static Topology read();

  [[nodiscard]] int numa_nodes() const noexcept { return static_cast<int>(nodes_.size()); }
  /// With at least one usable core each; the cores in the order of the hardware.
  [[nodiscard]] const std::vector<NumaNode>& nodes() const noexcept { return nodes_; }
  /// How many cores the mask and the quota leave, at least one.
  [[nodiscard]] int usable_cores() const noexcept;
  /// For each lane the processors of as many cores as it has threads. Empty if there are too few.
  [[nodiscard]] std::vector<CpuSet> cores_for(const LaneCores& wanted) const;

 private:
  std::vector<NumaNode> nodes_;
  double quota_;
};

/// Topology::read().usable_cores() when it was first asked for: a large machine takes a while to
/// look at. If it cannot be looked at, the processors in the mask.
int usable_cores();

/// How many threads of this process can run at the same time, for SpinPolicy: `in_mask` processors,
/// hardware threads included, and no more than `quota` pays for. A thread that polls on time that
/// another one needs gets both of them throttled. At least one.
int usable_processors(int in_mask, double quota) noexcept;
/// The same of the mask of the calling thread and this process's quota, which is read once.
int usable_processors();
double own_cpu_quota();

/// SystemError if the operating system refuses.
Status pin_this_thread(const CpuSet& cpus);

/// The cores' worth of time that cgroups (both versions) allow, over all levels; infinity for no
/// limit. Arguments for tests: what /proc/self/cgroup says, and where the cgroups are mounted.
double cpu_quota(const std::string& memberships, const std::string& mount = "/sys/fs/cgroup");

}  // namespace lockstep::sys
