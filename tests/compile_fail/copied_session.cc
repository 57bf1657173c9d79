// A session is one rank's membership: it can be handed on, not doubled.
#include <utility>

#include "lockstep/coll.h"

lockstep::coll::Session keep(lockstep::coll::Session& group) {
#ifdef MISTAKE
  return group;
#else
  return std::move(group);
#endif
}
