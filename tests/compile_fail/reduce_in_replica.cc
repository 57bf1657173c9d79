// Inside a step function there is one replica: nothing to reduce without the others.
#include "lockstep/strategy.h"

using namespace lockstep;

Tensor total(ReplicaContext& replica, const Tensor& own) {
#ifdef MISTAKE
  replica.reduce(ReduceOp::sum, own);
#endif
  return replica.all_reduce(ReduceOp::sum, own);
}
