// Only element types that every rank understands can be reduced.
#include <vector>

#include "lockstep/coll.h"

#ifdef MISTAKE
using Element = void*;
#else
using Element = double;
#endif

void step(lockstep::coll::Session& group, std::vector<Element>& x) {
  group.all_reduce(lockstep::Op::sum, std::span(x));
}
