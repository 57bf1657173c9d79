// Copies that are updated with different values are no copies any more.
#include "lockstep/strategy.h"

using namespace lockstep;

void step(Strategy& strategy, const Variable& w, const PerReplica<Tensor>& gradients) {
#ifdef MISTAKE
  const auto& change = gradients;
#else
  const auto change = strategy.reduce_to(ReduceOp::sum, gradients, w);
#endif
  strategy.update(
      w, [](Component& copy, const Tensor& x) { copy.assign_sub(x); }, change);
}
