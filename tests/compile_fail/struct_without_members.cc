// A struct is reduced member by member once it names them.
#include "lockstep/strategy.h"

using namespace lockstep;

struct Losses {
  Tensor image, text;
#ifndef MISTAKE
  static auto lockstep_members() { return std::tuple(&Losses::image, &Losses::text); }
#endif
};

Tensor image(Strategy& strategy, const PerReplica<Losses>& losses) {
  return strategy.reduce(ReduceOp::mean, losses).image;
}
