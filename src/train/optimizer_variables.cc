// The state that torch::optim keeps, by name: slots of parameters and what is the whole's.
// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "train/known_optimizers.h"
#include "train/optimizer_core.h"
#include "train/optimizer_state.h"

namespace lockstep::detail {

namespace {

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
  const auto refuse = [&](const char* why) {
    throw Unsupported(fmt::format(
        "variables(): what {} keeps is known to itself only, since it {}. Read it from local() of "
        "each replica's Optimizer",
        type_, why));
  };
  if (!train::has_torchs_state(optimizer(0))) {
    refuse("is not derived from one of torch's optimizers");
  }
  std::vector<OptimizerVariable> all;
  std::int64_t steps = 0;  // of the parameter that has taken most
  for (int p = 0; p < parameters_.count(); ++p) {
    std::vector<OptimizerVariable> own;
    for (int c = 0; c < copies(); ++c) {
      const train::ParameterState state = train::state_of(optimizer(c), parameters_.on(c, p));
      if (!state.is_known) refuse("keeps a state of its own type under the parameters");
      if (state.tensors.empty()) continue;
      steps = std::max(steps, state.steps);
      own.resize(state.tensors.size());
      for (std::size_t i = 0; i < state.tensors.size(); ++i) {
        const auto& [name, tensor] = state.tensors[i];
        own[i].name = state.is_slot
                          ? parameters_.variables[static_cast<std::size_t>(p)].name() + "/" + name
                          : name;
        own[i].slot = state.is_slot;
        own[i].components.push_back(tensor);
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
