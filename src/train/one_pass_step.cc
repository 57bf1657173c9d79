#include "train/one_pass_step.h"

#include <ATen/ops/arange.h>
#include <torch/optim/sgd.h>

#include <optional>
#include <typeinfo>
#include <vector>

#include "kernel/descent.h"
#include "lockstep/tensor.h"
#include "tensor/buffer.h"

namespace lockstep::train {

namespace {

using torch::optim::Optimizer;
using torch::optim::SGD;
using torch::optim::SGDOptions;
using torch::optim::SGDParamState;

/// The step of one parameter.
struct Step {
  kernel::Descent descent;
  Tensor parameter;
  Tensor gradient;
  Tensor velocity;  // undefined without momentum
};

kernel::Descent descent_of(const SGDOptions& options) {
  return {.rate = options.lr(),
          .weight_decay = options.weight_decay(),
          .momentum = options.momentum(),
          .dampening = options.dampening(),
          .nesterov = options.nesterov()};
}

Tensor velocity_of(Optimizer& sgd, const Tensor& parameter) {
  const auto found = sgd.state().find(c10::guts::to_string(parameter.unsafeGetTensorImpl()));
  if (found == sgd.state().end()) return {};
  return static_cast<const SGDParamState&>(*found->second).momentum_buffer();
}

bool can_take(const Step& step) {
  const at::ScalarType dtype = step.parameter.scalar_type();
  return (dtype == at::kFloat || dtype == at::kDouble) && step.parameter.device().is_cpu() &&
         tensor::lies_like(step.parameter, step.parameter) &&
         tensor::lies_like(step.gradient, step.parameter) &&
         (step.descent.momentum == 0 ||
          (step.velocity.defined() && tensor::lies_like(step.velocity, step.parameter)));
}

/// Those of all parameters that have a gradient, or nothing if one of them cannot be taken.
std::optional<std::vector<Step>> steps_of(Optimizer& sgd) {
  std::vector<Step> steps;
  for (const auto& group : sgd.param_groups()) {
    const auto descent = descent_of(static_cast<const SGDOptions&>(group.options()));
    for (const Tensor& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      Step step{descent, parameter, parameter.grad(), {}};
      if (descent.momentum != 0) step.velocity = velocity_of(sgd, parameter);
      if (!can_take(step)) return {};
      steps.push_back(std::move(step));
    }
  }
  return steps;
}

template <class T>
void take_as(const Step& step) {
  kernel::descend(step.descent, step.parameter.data_ptr<T>(),
                  step.velocity.defined() ? step.velocity.data_ptr<T>() : nullptr,
                  step.gradient.data_ptr<T>(), static_cast<std::size_t>(step.parameter.numel()));
}

void take(const Step& step) {
  if (step.parameter.scalar_type() == at::kFloat) {
    take_as<float>(step);
  } else {
    take_as<double>(step);
  }
}

/// Three steps each way from the same numbers, which fill vectors and leave a rest.
bool agrees_with_libtorch(at::ScalarType dtype, const SGDOptions& options) {
  constexpr int kSteps = 3;
  const Tensor numbers = at::arange(1, 134, at::TensorOptions().dtype(dtype));
  const Tensor own = numbers.sin();
  const Tensor theirs = own.clone();
  SGD own_sgd({own}, options);
  SGD their_sgd({theirs}, options);
  for (int i = 0; i < kSteps; ++i) {
    const Tensor gradient = (numbers * (0.7 + i)).cos();
    own.mutable_grad() = gradient;
    theirs.mutable_grad() = gradient;
    their_sgd.step();
    const auto steps = steps_of(own_sgd);
    if (!steps) {
      own_sgd.step();  // which makes the state
      continue;
    }
    for (const Step& step : *steps) take(step);
  }
  return own.equal(theirs);
}

/// libtorch chooses its code by processor and by environment, and later versions may round
/// elsewhere: looked at once, not assumed.
bool agrees_with_libtorch(at::ScalarType dtype) {
  const auto look = [](at::ScalarType of) {
    const SGDOptions plain = SGDOptions(0.1).momentum(0.9).dampening(0.3).weight_decay(0.01);
    return agrees_with_libtorch(of, plain) &&
           agrees_with_libtorch(of, SGDOptions(0.1).momentum(0.9).nesterov(true)) &&
           agrees_with_libtorch(of, SGDOptions(0.1).weight_decay(0.01));
  };
  static const bool floats = look(at::kFloat);
  static const bool doubles = look(at::kDouble);
  return dtype == at::kFloat ? floats : doubles;
}

}  // namespace

bool step_in_one_pass(Optimizer& optimizer) {
  if (typeid(optimizer) != typeid(SGD)) return false;  // one derived from it may do anything
  const at::NoGradGuard not_recorded;
  const auto steps = steps_of(optimizer);
  if (!steps) return false;
  for (const Step& step : *steps) {
    if (!agrees_with_libtorch(step.parameter.scalar_type())) return false;
  }
  for (const Step& step : *steps) take(step);
  return true;
}

}  // namespace lockstep::train
