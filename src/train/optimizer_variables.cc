// The state that torch::optim keeps, by name: slots of parameters and what is the whole's.
#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <functional>

#include "train/optimizer_core.h"

namespace lockstep::detail {

namespace {

using torch::optim::OptimizerParamState;
using Slot = std::pair<std::string, Tensor>;

template <class State, class Read>
bool read_as(const OptimizerParamState& state, const Read& read) {
  const auto* own = dynamic_cast<const State*>(&state);
  if (own != nullptr) read(*own);
  return own != nullptr;
}

/// The tensors of a parameter's state, and its number of steps.
std::vector<Slot> slots_of(const OptimizerParamState& state, std::int64_t& steps) {
  std::vector<Slot> slots;
  const auto add = [&](const char* name, const Tensor& tensor) {
    if (tensor.defined()) slots.emplace_back(name, tensor);
  };
  const auto adam = [&](const auto& own) {
    steps = own.step();
    add("exp_avg", own.exp_avg());
    add("exp_avg_sq", own.exp_avg_sq());
    add("max_exp_avg_sq", own.max_exp_avg_sq());
  };
  using namespace torch::optim;
  read_as<SGDParamState>(state,
                         [&](const auto& own) { add("momentum_buffer", own.momentum_buffer()); }) ||
      read_as<AdamParamState>(state, adam) || read_as<AdamWParamState>(state, adam) ||
      read_as<AdagradParamState>(state,
                                 [&](const auto& own) {
                                   steps = own.step();
                                   add("sum", own.sum());
                                 }) ||
      read_as<RMSpropParamState>(state,
                                 [&](const auto& own) {
                                   steps = own.step();
                                   add("square_avg", own.square_avg());
                                   add("momentum_buffer", own.momentum_buffer());
                                   add("grad_avg", own.grad_avg());
                                 }) ||
      read_as<LBFGSParamState>(state, [&](const auto& own) {
        add("d", own.d());
        add("H_diag", own.H_diag());
        add("prev_flat_grad", own.prev_flat_grad());
      });
  return slots;
}

/// The betas of Adam and AdamW; none of the others.
std::optional<std::tuple<double, double>> betas_of(torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  const OptimizerOptions& options = optimizer.param_groups().front().options();
  if (const auto* adam = dynamic_cast<const AdamOptions*>(&options)) return adam->betas();
  if (const auto* adamw = dynamic_cast<const AdamWOptions*>(&options)) return adamw->betas();
  return {};
}

}  // namespace

std::vector<OptimizerVariable> OptimizerCore::variables() const {
  std::vector<OptimizerVariable> all;
  std::int64_t steps = 0;
  for (int p = 0; p < parameters_.count(); ++p) {
    std::vector<OptimizerVariable> own;
    for (int r = 0; r < copies(); ++r) {
      const auto key = c10::guts::to_string(parameters_.on(r, p).unsafeGetTensorImpl());
      const auto found = optimizer(r).state().find(key);
      if (found == optimizer(r).state().end()) continue;
      const std::vector<Slot> slots = slots_of(*found->second, steps);
      own.resize(slots.size());
      for (std::size_t i = 0; i < slots.size(); ++i) {
        own[i].name = fmt::format(
            "{}/{}", parameters_.variables[static_cast<std::size_t>(p)].name(), slots[i].first);
        own[i].components.push_back(slots[i].second);
      }
    }
    all.insert(all.end(), own.begin(), own.end());
  }
  // libtorch counts steps where TensorFlow keeps the powers themselves.
  if (const auto betas = betas_of(optimizer(0))) {
    const auto power = [&](const char* name, double beta) {
      const Tensor value = at::scalar_tensor(std::pow(beta, static_cast<double>(steps + 1)));
      all.push_back({name, false, std::vector<Tensor>(copies_.size(), value)});
    };
    power("beta1_power", std::get<0>(*betas));
    power("beta2_power", std::get<1>(*betas));
  }
  return all;
}

}  // namespace lockstep::detail
