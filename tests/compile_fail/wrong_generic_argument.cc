// A step function of several signatures: nothing is known of its parameters.
#include "lockstep/strategy.h"

using namespace lockstep;

struct Step {
  Tensor operator()(const Tensor& own) const { return own; }
  Tensor operator()(ReplicaContext&, const Tensor& own) const { return own; }
};

void step(Strategy& strategy, const PerReplica<Tensor>& x) {
#ifdef MISTAKE
  strategy.run(Step(), x, 1);
#else
  strategy.run(Step(), x);
#endif
}
