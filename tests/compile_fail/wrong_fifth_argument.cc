// Also behind the first ones the message says which argument it is.
#include "lockstep/strategy.h"

using namespace lockstep;

void step(Strategy& strategy, const PerReplica<Tensor>& x, const PerReplica<int>& count) {
#ifdef MISTAKE
  strategy.run([](const Tensor& own, int, int, int, const std::string&) { return own; }, x, count,
               count, count, count);
#else
  strategy.run([](const Tensor& own, int, int, int, int) { return own; }, x, count, count, count,
               count);
#endif
}
