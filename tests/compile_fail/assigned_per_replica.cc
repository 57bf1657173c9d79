// The copies of a variable are equal: a per-replica value must be reduced before it is written.
#include "lockstep/strategy.h"

using namespace lockstep;

void store(Strategy& strategy, const Variable& v, const PerReplica<Tensor>& each) {
#ifdef MISTAKE
  static_cast<void>(strategy);
  v.assign(each);
#else
  v.assign(strategy.reduce(ReduceOp::mean, each));
#endif
}
