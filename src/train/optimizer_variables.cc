// The state that torch::optim keeps, by name: slots of parameters and what is the whole's.
// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "train/known_optimizers.h"
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

/// What torch keeps under a parameter.
struct State {
  std::vector<Slot> tensors;
  std::int64_t steps = 0;
  bool is_slot = true;  // false: it is the whole optimizer's, kept under the first parameter

  void add(const std::string& name, const Tensor& tensor) {
    if (tensor.defined()) tensors.emplace_back(name, tensor);
  }
  template <class Tensors>
  void add_each(const char* name, const Tensors& each) {
    std::size_t i = 0;
    for (const Tensor& tensor : each) add(fmt::format("{}/{}", name, i++), tensor);
  }
  void add_number(const char* name, double value) {
    tensors.emplace_back(name, at::scalar_tensor(value, at::TensorOptions().dtype(at::kDouble)));
  }
};

State read_lbfgs(const torch::optim::LBFGSParamState& own) {
  State state;
  state.is_slot = false;
  state.add("d", own.d());
  state.add("H_diag", own.H_diag());
  state.add("prev_flat_grad", own.prev_flat_grad());
  state.add_each("old_dirs", own.old_dirs());
  state.add_each("old_stps", own.old_stps());
  state.add_each("ro", own.ro());
  if (own.al()) state.add_each("al", *own.al());
  if (own.n_iter() > 0) {  // torch leaves them without a value before
    state.add_number("t", own.t());
    state.add_number("prev_loss", own.prev_loss());
  }
  state.add_number("func_evals", static_cast<double>(own.func_evals()));
  state.add_number("n_iter", static_cast<double>(own.n_iter()));
  return state;
}

State read_state(const OptimizerParamState& param_state) {
  State state;
  const auto adam = [&](const auto& own) {
    state.steps = own.step();
    state.add("exp_avg", own.exp_avg());
    state.add("exp_avg_sq", own.exp_avg_sq());
    state.add("max_exp_avg_sq", own.max_exp_avg_sq());
  };
  using namespace torch::optim;
  read_as<SGDParamState>(
      param_state, [&](const auto& own) { state.add("momentum_buffer", own.momentum_buffer()); }) ||
      read_as<AdamParamState>(param_state, adam) || read_as<AdamWParamState>(param_state, adam) ||
      read_as<AdagradParamState>(param_state,
                                 [&](const auto& own) {
                                   state.steps = own.step();
                                   state.add("sum", own.sum());
                                 }) ||
      read_as<RMSpropParamState>(param_state,
                                 [&](const auto& own) {
                                   state.steps = own.step();
                                   state.add("square_avg", own.square_avg());
                                   state.add("momentum_buffer", own.momentum_buffer());
                                   state.add("grad_avg", own.grad_avg());
                                 }) ||
      read_as<LBFGSParamState>(param_state, [&](const auto& own) { state = read_lbfgs(own); });
  return state;
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
  if (!train::has_torchs_state(optimizer(0))) {
    throw Unsupported(
        fmt::format("variables(): what {} keeps is known to itself only, since it is not derived "
                    "from one of torch's optimizers. Read it from local() of each replica's "
                    "Optimizer",
                    type_));
  }
  std::vector<OptimizerVariable> all;
  std::int64_t steps = 0;  // of the parameter that has taken most
  for (int p = 0; p < parameters_.count(); ++p) {
    std::vector<OptimizerVariable> own;
    for (int c = 0; c < copies(); ++c) {
      const auto key = c10::guts::to_string(parameters_.on(c, p).unsafeGetTensorImpl());
      const auto found = optimizer(c).state().find(key);
      if (found == optimizer(c).state().end()) continue;
      const State state = read_state(*found->second);
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
