// The order in which the gradients of several workers are sent, and which of them are sparse. The
// workers agree on both once, after the first backward pass.
#pragma once

#include <vector>

#include "strategy/workers.h"
#include "train/parameters.h"

namespace lockstep::train {

struct GradientOrder {
  /// Trainable parameters that are not in `sparse`, in the order in which their gradients arrived
  /// on the chief. Those without a gradient follow, the last parameter first.
  std::vector<int> dense;
  /// Parameters, ascending, that have a gradient on some replica and a dense one on none.
  std::vector<int> sparse;
};

/// A collective: all workers call it and get the same result. `arrived` has the parameters in the
/// order in which their gradients arrived on this worker.
GradientOrder agree_on_order(detail::Workers& workers, const Parameters& parameters,
                             const std::vector<int>& arrived);

}  // namespace lockstep::train
