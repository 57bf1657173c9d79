// So does a non-slot variable.
#include "lockstep/strategy.h"

using namespace lockstep;

#ifdef MISTAKE
using Other = NonSlotVariable;
#else
using Other = Variable;
#endif

void step(Strategy& strategy, const Variable& w, const Other& other) {
  strategy.update(
      w, [](Component& copy, const Component& x) { copy.assign_sub(x); }, other);
}
