// A per-replica loss is no number: it is reduced first, or one replica's is read.
#include "lockstep/strategy.h"

using namespace lockstep;

double total(Strategy& strategy, const PerReplica<Tensor>& losses) {
#ifdef MISTAKE
  static_cast<void>(strategy);
  return losses.item<double>();
#else
  return strategy.reduce(ReduceOp::sum, losses).item<double>() + losses[0].item<double>();
#endif
}
