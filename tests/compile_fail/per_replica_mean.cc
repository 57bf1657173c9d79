// The mean over all replicas is the strategy's business.
#include "lockstep/strategy.h"

using namespace lockstep;

Tensor mean(Strategy& strategy, const PerReplica<Tensor>& losses) {
#ifdef MISTAKE
  static_cast<void>(strategy);
  return losses.mean();
#else
  return strategy.reduce(ReduceOp::mean, losses, along(0));
#endif
}
