// Hierarchical copy: the way a pack takes through n devices of two halves, [0, n/2) and [n/2, n).
// It is summed on one main device and given to its partner in the other half; every other device
// copies from the main of its own half, so that each result crosses between the halves once. Packs
// take turns with the mains.
//
// The sum itself is one pass in the fixed order: a partial sum for each half would add in another
// order unless n is a power of two, and round 16-bit types twice.
#pragma once

#include <vector>

#include "lockstep/tensor.h"
#include "strategy/core.h"
#include "strategy/cross_device/packing.h"
#include "tensor/reduce.h"

namespace lockstep::detail {

struct Mains {
  int first;   // where the pack is summed
  int second;  // its partner in the other half; of one device, itself
  friend bool operator==(const Mains&, const Mains&) = default;
};

/// Of the pack-th pack on n devices.
Mains mains_of(int pack, int n) noexcept;
/// The one of the two in the device's half.
int main_for(int device, Mains mains, int n) noexcept;

/// Sums each job's inputs (one a device) into all of its outputs (one a device).
void hierarchical_copy(StrategyCore& core, const std::vector<tensor::ReduceJob>& jobs,
                       const std::vector<Pack>& packs);

}  // namespace lockstep::detail
