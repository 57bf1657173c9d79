#include "train/optimizer_state.h"

#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

namespace lockstep::train {

namespace {

using torch::optim::OptimizerParamState;

template <class State, class Read>
bool read_as(const OptimizerParamState& state, const Read& read) {
  const auto* own = dynamic_cast<const State*>(&state);
  if (own != nullptr) read(*own);
  return own != nullptr;
}

/// Tells `to` what there is: tensor(name, value), each(name, values), number(name, value), steps(n),
/// and of_the_whole() if it is not one parameter's. False for a state that is not torch's.
template <class To>
bool read(const OptimizerParamState& state, To& to) {
  using namespace torch::optim;
  const auto adam = [&](const auto& own) {
    to.steps(own.step());
    to.tensor("exp_avg", own.exp_avg());
    to.tensor("exp_avg_sq", own.exp_avg_sq());
    to.tensor("max_exp_avg_sq", own.max_exp_avg_sq());
  };
  return read_as<SGDParamState>(
             state,
             [&](const auto& own) { to.tensor("momentum_buffer", own.momentum_buffer()); }) ||
         read_as<AdamParamState>(state, adam) || read_as<AdamWParamState>(state, adam) ||
         read_as<AdagradParamState>(state,
                                    [&](const auto& own) {
                                      to.steps(own.step());
                                      to.tensor("sum", own.sum());
                                    }) ||
         read_as<RMSpropParamState>(state,
                                    [&](const auto& own) {
                                      to.steps(own.step());
                                      to.tensor("square_avg", own.square_avg());
                                      to.tensor("momentum_buffer", own.momentum_buffer());
                                      to.tensor("grad_avg", own.grad_avg());
                                    }) ||
         read_as<LBFGSParamState>(state, [&](const auto& own) {
           to.of_the_whole();
           to.tensor("d", own.d());
           to.tensor("H_diag", own.H_diag());
           to.tensor("prev_flat_grad", own.prev_flat_grad());
           to.each("old_dirs", own.old_dirs());
           to.each("old_stps", own.old_stps());
           to.each("ro", own.ro());
           if (own.al()) to.each("al", *own.al());
           if (own.n_iter() > 0) {  // torch leaves them without a value before
             to.number("t", own.t());
             to.number("prev_loss", own.prev_loss());
           }
           to.number("func_evals", static_cast<double>(own.func_evals()));
           to.number("n_iter", static_cast<double>(own.n_iter()));
         });
}

struct Collect {
  ParameterState state;

  void tensor(const std::string& name, const Tensor& tensor) {
    if (tensor.defined()) state.tensors.emplace_back(name, tensor);
  }
  template <class Tensors>
  void each(const char* name, const Tensors& all) {
    std::size_t i = 0;
    for (const Tensor& one : all) tensor(fmt::format("{}/{}", name, i++), one);
  }
  void number(const char* name, double value) {
    tensor(name, at::scalar_tensor(value, at::TensorOptions().dtype(at::kDouble)));
  }
  void steps(std::int64_t count) { state.steps = count; }
  void of_the_whole() { state.is_slot = false; }
};

/// Calls look(tensor) for each tensor, and adds up the steps.
template <class LookAt>
struct Visit {
  const LookAt& look;
  std::int64_t all_steps = 0;

  void tensor(const char*, const Tensor& tensor) const {
    if (tensor.defined()) look(tensor);
  }
  template <class Tensors>
  void each(const char*, const Tensors& all) const {
    for (const Tensor& one : all) tensor("", one);
  }
  void number(const char*, double) const {}
  void steps(std::int64_t count) { all_steps += count; }
  void of_the_whole() const {}
};

/// In an order that stays while nothing is added or taken away. Returns the steps.
template <class LookAt>
std::int64_t look_at_all(const torch::optim::Optimizer& optimizer, const LookAt& look) {
  Visit<LookAt> visit{look};
  for (const auto& each : optimizer.state()) (void)read(*each.second, visit);
  return visit.all_steps;
}

std::uint32_t version_of(const Tensor& tensor) {
  const c10::VariableVersion& counter = tensor.unsafeGetTensorImpl()->version_counter();
  return counter.enabled() ? counter.current_version() : 0;
}

}  // namespace

ParameterState state_of(const torch::optim::Optimizer& optimizer, const Tensor& parameter) {
  const auto found = optimizer.state().find(c10::guts::to_string(parameter.unsafeGetTensorImpl()));
  Collect collect;
  if (found != optimizer.state().end()) collect.state.is_known = read(*found->second, collect);
  return std::move(collect.state);
}

void StateWatch::begin() {
  seen_.clear();
  steps_ = look_at_all(optimizer_, [&](const Tensor& tensor) {
    seen_.push_back({WeakTensor(tensor.getIntrusivePtr()), version_of(tensor)});
  });
}

bool StateWatch::has_changed() const {
  std::size_t next = 0;
  bool same = true;
  const std::int64_t steps = look_at_all(optimizer_, [&](const Tensor& tensor) {
    same = same && next < seen_.size() &&
           seen_[next].tensor._unsafe_get_target() == tensor.unsafeGetTensorImpl() &&
           seen_[next].version == version_of(tensor);
    ++next;
  });
  return !same || next != seen_.size() || steps != steps_;
}

}  // namespace lockstep::train
