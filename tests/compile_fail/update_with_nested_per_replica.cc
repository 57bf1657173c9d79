// Also inside a container.
#include <vector>

#include "lockstep/strategy.h"

using namespace lockstep;

void step(Strategy& strategy, const Variable& w, const std::vector<PerReplica<Tensor>>& gradients) {
#ifdef MISTAKE
  const auto& change = gradients;
#else
  const std::vector<Colocated<Tensor>> change = {
      strategy.reduce_to(ReduceOp::sum, gradients[0], w)};
#endif
  strategy.update(
      w, [](Component& copy, const std::vector<Tensor>& x) { copy.assign_sub(x[0]); }, change);
}
