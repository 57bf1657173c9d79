// The options are those of the optimizer.
#include "lockstep/optimizer.h"

// clang-format off
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
// clang-format on

using namespace lockstep;

void make(Strategy& strategy, const Model<torch::nn::Linear>& net) {
#ifdef MISTAKE
  auto sgd = strategy.optimizer<torch::optim::SGD>(net, torch::optim::AdamOptions(0.1));
#else
  auto sgd = strategy.optimizer<torch::optim::SGD>(net, torch::optim::SGDOptions(0.1));
#endif
}
