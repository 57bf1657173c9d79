#include "train/known_optimizers.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <typeinfo>

namespace lockstep::train {

namespace {

namespace optim = torch::optim;

template <class... Kinds>
bool is_one_of(const torch::optim::Optimizer& optimizer) {
  return ((typeid(optimizer) == typeid(Kinds)) || ...);
}

template <class... Kinds>
bool derives_from_one_of(const torch::optim::Optimizer& optimizer) {
  return ((dynamic_cast<const Kinds*>(&optimizer) != nullptr) || ...);
}

}  // namespace

bool is_torchs_own(const torch::optim::Optimizer& optimizer) {
  return is_one_of<optim::SGD, optim::Adam, optim::AdamW, optim::Adagrad, optim::RMSprop,
                   optim::LBFGS>(optimizer);
}

bool has_torchs_state(const torch::optim::Optimizer& optimizer) {
  return derives_from_one_of<optim::SGD, optim::Adam, optim::AdamW, optim::Adagrad, optim::RMSprop,
                             optim::LBFGS>(optimizer);
}

}  // namespace lockstep::train
