// A non-slot value lives on the non-slot devices, which need not be the variable's.
#include "lockstep/strategy.h"

using namespace lockstep;

#ifdef MISTAKE
using Value = NonSlot<Tensor>;
#else
using Value = Colocated<Tensor>;
#endif

void step(Strategy& strategy, const Variable& w, const Value& value) {
  strategy.update(
      w, [](Component& copy, const Tensor& x) { copy.assign_sub(x); }, value);
}
