// And in a step function.
#include "lockstep/strategy.h"

using namespace lockstep;

struct Losses {
  Tensor image, text;
#ifndef MISTAKE
  static auto lockstep_members() { return std::tuple(&Losses::image, &Losses::text); }
#endif
};

Tensor image(ReplicaContext& replica, const Losses& losses) {
  return replica.all_reduce(ReduceOp::sum, losses).image;
}
