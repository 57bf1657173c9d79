// A struct can be shared out once it names its members.
#include "lockstep/distributed_dataset.h"

using namespace lockstep;

struct Batch {
  Tensor image, label;
#ifndef MISTAKE
  static auto lockstep_members() { return std::tuple(&Batch::image, &Batch::label); }
#endif
};

void share_out_structs(Strategy& strategy, const Dataset<Batch>& batches) {
  strategy.distribute(batches);
}
