// A mirrored value is reduced already; doing it again would multiply it.
#include "lockstep/strategy.h"

using namespace lockstep;

Tensor read(Strategy& strategy, const Mirrored<Tensor>& value) {
#ifdef MISTAKE
  strategy.reduce(ReduceOp::sum, value);
#endif
  static_cast<void>(strategy);
  return value.any();
}
