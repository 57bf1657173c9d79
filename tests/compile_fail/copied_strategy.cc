// A strategy has threads and variables: it can be referred to, or cloned, not copied by accident.
#include "lockstep/mirrored_strategy.h"

using namespace lockstep;

#ifdef MISTAKE
int replicas(MirroredStrategy strategy) { return strategy.num_replicas_in_sync(); }
#else
int replicas(MirroredStrategy& strategy) { return strategy.num_replicas_in_sync(); }
#endif

int two(MirroredStrategy& strategy) { return 2 * replicas(strategy); }
