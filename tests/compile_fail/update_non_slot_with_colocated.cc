// The other way round: a value that lives with a variable is not on the non-slot devices.
#include "lockstep/strategy.h"

using namespace lockstep;

#ifdef MISTAKE
using Value = Colocated<Tensor>;
#else
using Value = NonSlot<Tensor>;
#endif

void step(Strategy& strategy, const NonSlotDevices& where, const NonSlotVariable& beta,
          const Value& value) {
  strategy.update_non_slot(
      where, [](const Component& copy, const Tensor& x) { copy.assign(x); }, beta, value);
}
