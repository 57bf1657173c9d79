// Nor has a non-slot value.
#include "lockstep/strategy.h"

using namespace lockstep;

#ifdef MISTAKE
using Value = NonSlot<Tensor>;
#else
using Value = PerReplica<Tensor>;
#endif

PerReplica<Tensor> step(Strategy& strategy, const Value& value) {
  return strategy.run([](const Tensor& x) { return x + 1; }, value);
}
