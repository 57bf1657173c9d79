// The message says which argument of run() nothing takes.
#include "lockstep/strategy.h"

using namespace lockstep;

void step(Strategy& strategy, const PerReplica<Tensor>& x, const PerReplica<int>& count) {
#ifdef MISTAKE
  strategy.run([](ReplicaContext&, const Tensor& own) { return own; }, x, count);
#else
  strategy.run([](ReplicaContext&, const Tensor& own, int) { return own; }, x, count);
#endif
}
