// The older spelling refuses it alike.
#include "lockstep/distribution_strategy.h"

using namespace lockstep;

Tensor read(DistributionStrategy distribution, const Mirrored<Tensor>& value) {
#ifdef MISTAKE
  distribution.reduce("sum", value, "CPU:0");
#endif
  return distribution.fetch(value);
}
