// A result cannot go into memory that must not be written.
#include <vector>

#include "lockstep/coll.h"

#ifdef MISTAKE
void step(lockstep::coll::Session& group, const std::vector<float>& x) {
#else
void step(lockstep::coll::Session& group, std::vector<float>& x) {
#endif
  group.all_reduce(lockstep::Op::sum, std::span(x));
}
