// What has been shared out cannot be transformed: every worker would do it to its part alone.
#include "lockstep/distributed_dataset.h"

using namespace lockstep;

void share_out_before(Strategy& strategy) {
  const auto dataset = data::range(8).batch(GlobalBatch{4});
#ifdef MISTAKE
  strategy.distribute(dataset).repeat(2);
#else
  strategy.distribute(dataset.repeat(2));
#endif
}
