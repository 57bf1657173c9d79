// CoreLease: cores of this host that one strategy pins threads to, and no other of any process.
//
// A processor is an abstract Unix socket name, bound as long as the lease lives: it is free again
// when the process ends, however it ends. Leases of other users count, those of other network
// namespaces are not seen. Another program can take the names first; then no strategy pins.
//
//   const std::optional<CoreLease> lease = CoreLease::take(cores);   // empty: not ours, do not pin
#pragma once

#include <optional>
#include <vector>

#include "sys/descriptor.h"
#include "sys/topology.h"

namespace lockstep::sys {

class CoreLease {
 public:
  /// All of them, or nothing if another lease has one.
  static std::optional<CoreLease> take(const std::vector<CpuSet>& cores);

 private:
  CoreLease() = default;
  std::vector<Descriptor> names_;
};

}  // namespace lockstep::sys
