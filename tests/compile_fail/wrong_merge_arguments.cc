// A merge function gets the values of all replicas.
#include "lockstep/strategy.h"

using namespace lockstep;

#ifdef MISTAKE
using Merged = std::vector<int>;
#else
using Merged = PerReplica<int>;
#endif

int sum(ReplicaContext& replica) {
  return replica.merge_call([](Strategy&, const Merged& each) { return each[0] + each[1]; }, 1);
}
