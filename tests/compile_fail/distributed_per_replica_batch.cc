// distribute() divides what it is given; a batch that is one replica's already would be cut again.
#include "lockstep/distributed_dataset.h"

using namespace lockstep;

void share_out_global(Strategy& strategy) {
#ifdef MISTAKE
  strategy.distribute(data::range(8).batch(PerReplicaBatch{4}));
#else
  strategy.distribute(data::range(8).batch(GlobalBatch{4}));
#endif
}
