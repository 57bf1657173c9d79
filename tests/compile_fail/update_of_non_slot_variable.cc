// Only update_non_slot() writes a non-slot variable: its copies are elsewhere.
#include "lockstep/strategy.h"

using namespace lockstep;

void step(Strategy& strategy, const NonSlotVariable& beta, const NonSlotDevices& where) {
  const auto halve = [](const Component& copy) { copy.assign(copy * 0.5); };
#ifdef MISTAKE
  static_cast<void>(where);
  strategy.update(beta, halve);
#else
  strategy.update_non_slot(where, halve, beta);
#endif
}
