// Fabric: a generation whose ranks are connected by links; makes those of its groups.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transport/generation.h"
#include "transport/link.h"

namespace lockstep::transport {

class Fabric : public Generation {
 public:
  /// This rank's end of the group `id`, whose members are ranks of the generation in the group's
  /// order. All members call it with the same arguments but their own position. Any thread; does
  /// not block.
  virtual std::unique_ptr<Link> link(std::uint64_t id, const std::vector<int>& members,
                                     int rank) = 0;
};

}  // namespace lockstep::transport
