// Every replica takes a whole element: a global batch would be used once for each of them.
#include "lockstep/distributed_dataset.h"

using namespace lockstep;

void share_out_whole(Strategy& strategy) {
  strategy.distribute_from_function([](const InputContext& context) {
#ifdef MISTAKE
    return data::range(8).batch(GlobalBatch{4});
#else
    return data::range(8).batch(PerReplicaBatch{context.get_per_replica_batch_size(4)});
#endif
  });
}
