// All replicas get the same object at the same time: it is const.
#include <vector>

#include "lockstep/strategy.h"

using namespace lockstep;

void step(Strategy& strategy, const PerReplica<Tensor>& x) {
  std::vector<float> shared(2);
#ifdef MISTAKE
  strategy.run([](std::vector<float>& all, const Tensor&) { all[0] += 1; }, shared, x);
#else
  strategy.run([](const std::vector<float>& all, const Tensor& own) { return own * all[0]; },
               shared, x);
#endif
}
