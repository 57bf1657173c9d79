// A colocated value has a component for each copy of a variable, not for each replica.
#include "lockstep/strategy.h"

using namespace lockstep;

#ifdef MISTAKE
using Value = Colocated<Tensor>;
#else
using Value = PerReplica<Tensor>;
#endif

PerReplica<Tensor> step(Strategy& strategy, const Value& value) {
  return strategy.run([](const Tensor& x) { return x + 1; }, value);
}
