// The same for numbers.
#include "lockstep/strategy.h"

using namespace lockstep;

int plus_one(const PerReplica<int>& counts) {
#ifdef MISTAKE
  return counts + 1;
#else
  return counts[0] + 1;
#endif
}
