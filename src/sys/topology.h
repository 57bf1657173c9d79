// Topology: the cores this process may use, and which of them its lanes are pinned to.
//
// "May use" means the affinity mask of the process, and no more cores than the cgroup's quota pays
// for. Each lane gets a core of its own, neighbours next to each other; the hardware threads of a
// core stay together. Pinning is for lanes that have a core each: if there are more lanes than
// cores, nobody is pinned.
//
//   const auto cores = Topology::read().cores_for(lanes, local_rank * lanes);
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
  /// One core for each of `lanes`, after leaving out the first `offset` cores, which are other
  /// ranks' on this host. Empty if there are not that many.
  [[nodiscard]] std::vector<CpuSet> cores_for(int lanes, int offset) const;

 private:
  std::vector<NumaNode> nodes_;
  double quota_;
};

/// Topology::read().cores_for(lanes, offset).
std::vector<CpuSet> cores_for(int lanes, int offset);

/// SystemError if the operating system refuses.
Status pin_this_thread(const CpuSet& cpus);

/// The cores' worth of time that cgroups (both versions) allow, over all levels; infinity for no
/// limit. Arguments for tests: what /proc/self/cgroup says, and where the cgroups are mounted.
double cpu_quota(const std::string& memberships, const std::string& mount = "/sys/fs/cgroup");

}  // namespace lockstep::sys
