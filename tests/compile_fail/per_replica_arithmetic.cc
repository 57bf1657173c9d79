// Arithmetic belongs into the step function, or behind a reduction.
#include "lockstep/operators.h"
#include "lockstep/strategy.h"

using namespace lockstep;

Tensor plus_one(Strategy& strategy, const PerReplica<Tensor>& losses) {
#ifdef MISTAKE
  static_cast<void>(strategy);
  return losses + 1;
#else
  return strategy.reduce(ReduceOp::sum, losses) + 1;
#endif
}
