// One replica's copy of a model is not the model.
#include "lockstep/optimizer.h"

// clang-format off
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
// clang-format on

using namespace lockstep;

void make(Strategy& strategy, const Model<torch::nn::Linear>& net) {
  const torch::optim::SGDOptions options(0.1);
#ifdef MISTAKE
  auto sgd = strategy.optimizer<torch::optim::SGD>(net[0], options);
#else
  auto sgd = strategy.optimizer<torch::optim::SGD>(net, options);
#endif
}
