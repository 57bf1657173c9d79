// So it is along an axis.
#include "lockstep/strategy.h"

using namespace lockstep;

struct Losses {
  Tensor image, text;
#ifndef MISTAKE
  static auto lockstep_members() { return std::tuple(&Losses::image, &Losses::text); }
#endif
};

Tensor image(Strategy& strategy, const PerReplica<Losses>& losses) {
  return strategy.reduce(ReduceOp::mean, losses, along(0)).image;
}
