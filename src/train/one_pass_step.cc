#include "train/one_pass_step.h"

#include <ATen/ops/arange.h>
#include <fmt/format.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <optional>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "kernel/optimizer_step.h"
#include "lockstep/error.h"
#include "tensor/buffer.h"
#include "tensor/torch_text.h"

namespace lockstep::train {

namespace {

using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::AdamParamState;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;
using torch::optim::AdamWParamState;
using torch::optim::SGD;
using torch::optim::SGDOptions;
using torch::optim::SGDParamState;

/// The step of one parameter. Nothing changes before it is called, and it does not fail.
using Step = std::function<void(InParts)>;
/// Of all parameters that have a gradient.
using Steps = std::vector<Step>;

std::size_t count_of(const Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()); }

bool meet(const Tensor& one, const Tensor& other) {
  const auto* first = static_cast<const std::byte*>(one.data_ptr());
  const auto* second = static_cast<const std::byte*>(other.data_ptr());
  return first < second + other.nbytes() && second < first + one.nbytes();
}

/// Whether one loop can go over all of them; those that are not defined do not count.
bool go_together(std::initializer_list<Tensor> tensors) {
  const Tensor& parameter = *tensors.begin();
  for (const Tensor* each = tensors.begin(); each != tensors.end(); ++each) {
    if (!each->defined()) continue;
    if (!tensor::lies_like(*each, parameter)) return false;
    for (const Tensor* before = tensors.begin(); before != each; ++before) {
      if (before->defined() && meet(*before, *each)) return false;
    }
  }
  return true;
}

template <class T>
T* data_of(const Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr<T>() : nullptr;
}

template <class T>
kernel::SgdMemory<T> part_of(const kernel::SgdMemory<T>& whole, std::size_t begin,
                             std::size_t count) {
  return {.parameter = whole.parameter + begin,
          .velocity = whole.velocity != nullptr ? whole.velocity + begin : nullptr,
          .gradient = whole.gradient + begin,
          .count = count};
}

template <class T>
kernel::AdamMemory<T> part_of(const kernel::AdamMemory<T>& whole, std::size_t begin,
                              std::size_t count) {
  return {.parameter = whole.parameter + begin,
          .mean = whole.mean + begin,
          .square = whole.square + begin,
          .largest = whole.largest != nullptr ? whole.largest + begin : nullptr,
          .gradient = whole.gradient + begin,
          .count = count};
}

template <class How, class Memory>
void step_in_parts(InParts in_parts, const Tensor& parameter, const How& how,
                   const Memory& memory) {
  in_parts(parameter, [&](std::size_t begin, std::size_t end) {
    kernel::step(how, part_of(memory, begin, end - begin));
  });
}

/// A parameter as messages name it.
struct Position {
  std::size_t group;
  std::size_t index;  // in its group
};

/// A state that was loaded, or made by hand, may lack a tensor.
void require_kept(const Tensor& kept, const char* name, const Position& position,
                  const Tensor& parameter) {
  if (kept.defined()) return;
  throw InvalidUsage(fmt::format(
      "optimizer step: the state of parameter {} of group {}, {}, has no {}, which the group's "
      "options need. Load a state that has it, or erase the parameter's entry from "
      "local().state(): the next step makes it anew",
      position.index, position.group, tensor::shape_text(parameter), name));
}

/// What torch keeps for a parameter; null before its first step.
template <class State>
State* state_of(torch::optim::Optimizer& optimizer, const Tensor& parameter) {
  const auto found = optimizer.state().find(c10::guts::to_string(parameter.unsafeGetTensorImpl()));
  return found != optimizer.state().end() ? static_cast<State*>(found->second.get()) : nullptr;
}

template <class T>
std::optional<Step> step_of(SGD& sgd, const SGDOptions& options, const Tensor& parameter,
                            const Position& position) {
  const kernel::Sgd how{.rate = options.lr(),
                        .weight_decay = options.weight_decay(),
                        .momentum = options.momentum(),
                        .dampening = options.dampening(),
                        .nesterov = options.nesterov()};
  Tensor velocity;
  if (how.momentum != 0) {
    const auto* state = state_of<SGDParamState>(sgd, parameter);
    if (state == nullptr) return {};
    velocity = state->momentum_buffer();
    require_kept(velocity, "momentum_buffer", position, parameter);
  }
  if (!go_together({parameter, parameter.grad(), velocity})) return {};
  const kernel::SgdMemory<T> memory{.parameter = data_of<T>(parameter),
                                    .velocity = data_of<T>(velocity),
                                    .gradient = data_of<T>(parameter.grad()),
                                    .count = count_of(parameter)};
  return [=](InParts in_parts) { step_in_parts(in_parts, parameter, how, memory); };
}

/// Adam and AdamW have options and states of the same members.
template <class T, class State, class Kind, class Options>
std::optional<Step> adam_step_of(Kind& adam, const Options& options, const Tensor& parameter,
                                 const Position& position) {
  auto* const state = state_of<State>(adam, parameter);
  if (state == nullptr) return {};
  const Tensor largest = options.amsgrad() ? state->max_exp_avg_sq() : Tensor();
  require_kept(state->exp_avg(), "exp_avg", position, parameter);
  require_kept(state->exp_avg_sq(), "exp_avg_sq", position, parameter);
  if (options.amsgrad()) require_kept(largest, "max_exp_avg_sq", position, parameter);
  if (!go_together({parameter, parameter.grad(), state->exp_avg(), state->exp_avg_sq(), largest}))
    return {};
  const std::int64_t steps = state->step() + 1;
  const auto [beta1, beta2] = options.betas();
  kernel::Adam how{.rate = options.lr() / (1 - std::pow(beta1, steps)),
                   .beta1 = beta1,
                   .beta2 = beta2,
                   .correction = std::sqrt(1 - std::pow(beta2, steps)),
                   .epsilon = options.eps()};
  if constexpr (std::is_same_v<Kind, AdamW>) {
    how.shrink = 1 - options.lr() * options.weight_decay();
  } else {
    how.weight_decay = options.weight_decay();
  }
  const kernel::AdamMemory<T> memory{.parameter = data_of<T>(parameter),
                                     .mean = data_of<T>(state->exp_avg()),
                                     .square = data_of<T>(state->exp_avg_sq()),
                                     .largest = data_of<T>(largest),
                                     .gradient = data_of<T>(parameter.grad()),
                                     .count = count_of(parameter)};
  return [=](InParts in_parts) {
    step_in_parts(in_parts, parameter, how, memory);
    state->step(steps);
    // torch changes the parameter itself here, which whoever kept it for a backward pass is to
    // find out; SGD changes it behind its back.
    parameter.unsafeGetTensorImpl()->bump_version();
  };
}

template <class T>
std::optional<Step> step_of(Adam& adam, const AdamOptions& options, const Tensor& parameter,
                            const Position& position) {
  return adam_step_of<T, AdamParamState>(adam, options, parameter, position);
}

template <class T>
std::optional<Step> step_of(AdamW& adamw, const AdamWOptions& options, const Tensor& parameter,
                            const Position& position) {
  return adam_step_of<T, AdamWParamState>(adamw, options, parameter, position);
}

/// Nothing if one of them cannot be taken.
template <class Options, class Kind>
std::optional<Steps> steps_of(Kind& optimizer) {
  Steps steps;
  const auto& groups = optimizer.param_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto& options = static_cast<const Options&>(groups[g].options());
    for (std::size_t i = 0; i < groups[g].params().size(); ++i) {
      const Tensor& parameter = groups[g].params()[i];
      const Position position{.group = g, .index = i};
      if (!parameter.grad().defined()) continue;
      if (!parameter.device().is_cpu()) return {};
      std::optional<Step> step;
      if (parameter.scalar_type() == at::kFloat)
        step = step_of<float>(optimizer, options, parameter, position);
      if (parameter.scalar_type() == at::kDouble)
        step = step_of<double>(optimizer, options, parameter, position);
      if (!step) return {};
      steps.push_back(*std::move(step));
    }
  }
  return steps;
}

/// Three steps each way from the same numbers, which fill vectors and leave a rest.
template <class Kind, class Options>
bool takes_the_same_steps(at::ScalarType dtype, const Options& options) {
  constexpr int kSteps = 3;
  const Tensor numbers = at::arange(1, 134, at::TensorOptions().dtype(dtype));
  const Tensor own = numbers.sin();
  const Tensor theirs = own.clone();
  Kind own_optimizer({own}, options);
  Kind their_optimizer({theirs}, options);
  for (int i = 0; i < kSteps; ++i) {
    const Tensor gradient = (numbers * (0.7 + i)).cos();
    own.mutable_grad() = gradient;
    theirs.mutable_grad() = gradient;
    their_optimizer.step();
    if (const auto steps = steps_of<Options>(own_optimizer)) {
      for (const Step& step : *steps) step(tensor::in_parts);
    } else {
      own_optimizer.step();  // which makes the state
    }
  }
  return std::memcmp(own.data_ptr(), theirs.data_ptr(), own.nbytes()) == 0;
}

template <class Kind, class Options>
bool takes_the_same_steps(const std::vector<Options>& each) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const Options& options : each) {
      if (!takes_the_same_steps<Kind>(dtype, options)) return false;
    }
  }
  return true;
}

// libtorch chooses its code by processor and by environment, and later versions may round
// elsewhere: looked at once, not assumed.

bool agrees_with_libtorch(const SGD&) {
  const auto rate = [] { return SGDOptions(0.1); };
  static const bool agrees = takes_the_same_steps<SGD, SGDOptions>(
      {rate().weight_decay(0.01), rate().momentum(0.9).dampening(0.3).weight_decay(0.01),
       rate().momentum(0.9).nesterov(true)});
  return agrees;
}

template <class Options>
std::vector<Options> kinds_of_adam() {
  return {Options(0.1).weight_decay(0.01), Options(0.1).weight_decay(0.01).amsgrad(true)};
}

bool agrees_with_libtorch(const Adam&) {
  static const bool agrees = takes_the_same_steps<Adam>(kinds_of_adam<AdamOptions>());
  return agrees;
}

bool agrees_with_libtorch(const AdamW&) {
  static const bool agrees = takes_the_same_steps<AdamW>(kinds_of_adam<AdamWOptions>());
  return agrees;
}

template <class Kind, class Options>
bool take_as(torch::optim::Optimizer& optimizer, InParts in_parts) {
  if (typeid(optimizer) != typeid(Kind)) return false;  // one derived from it may do anything
  auto& own = static_cast<Kind&>(optimizer);
  if (!agrees_with_libtorch(own)) return false;
  const auto steps = steps_of<Options>(own);
  if (!steps) return false;
  for (const Step& step : *steps) step(in_parts);
  return true;
}

}  // namespace

bool step_in_one_pass(torch::optim::Optimizer& optimizer, InParts in_parts) {
  const at::NoGradGuard not_recorded;
  return take_as<SGD, SGDOptions>(optimizer, in_parts) ||
         take_as<Adam, AdamOptions>(optimizer, in_parts) ||
         take_as<AdamW, AdamWOptions>(optimizer, in_parts);
}

}  // namespace lockstep::train
