// A per-replica value is several tensors: which one is meant must be said.
#include "lockstep/strategy.h"

using namespace lockstep;

Tensor total(Strategy& strategy, const PerReplica<Tensor>& losses) {
#ifdef MISTAKE
  static_cast<void>(strategy);
  Tensor x = losses;
#else
  Tensor x = strategy.reduce(ReduceOp::sum, losses);
#endif
  return x;
}
