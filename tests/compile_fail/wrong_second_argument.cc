// The message says which argument of the step function is the wrong one.
#include "lockstep/strategy.h"

using namespace lockstep;

void step(Strategy& strategy, const PerReplica<Tensor>& x, const PerReplica<int>& count) {
#ifdef MISTAKE
  strategy.run([](ReplicaContext&, const Tensor& own, const std::string&) { return own; }, x,
               count);
#else
  strategy.run([](ReplicaContext&, const Tensor& own, int) { return own; }, x, count);
#endif
}
