// An optimizer of a strategy is made over all copies of a model, not over the tensors of one.
#include "lockstep/optimizer.h"

// clang-format off
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
// clang-format on

using namespace lockstep;

void make(Strategy& strategy, const Model<torch::nn::Linear>& net) {
  const torch::optim::SGDOptions options(0.1);
#ifdef MISTAKE
  auto sgd = strategy.optimizer<torch::optim::SGD>(net[0]->parameters(), options);
#else
  auto sgd = strategy.optimizer<torch::optim::SGD>(net, options);
  auto same = strategy.optimizer<torch::optim::SGD>(net.variables(), options);
#endif
}
