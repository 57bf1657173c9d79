// A Work that nobody waits for is an operation whose buffers nobody keeps alive.
#include <vector>

#include "lockstep/coll.h"

void step(lockstep::coll::Session& group, std::vector<float>& x) {
#ifdef MISTAKE
  group.start_all_reduce(lockstep::Op::sum, std::span(x));
#else
  group.start_all_reduce(lockstep::Op::sum, std::span(x)).wait();
#endif
}
