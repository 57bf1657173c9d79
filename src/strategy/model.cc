#include "lockstep/model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <mutex>
#include <set>

#include "strategy/variable_state.h"
#include "tensor/torch_text.h"

namespace lockstep::detail {

namespace {

at::Generator default_generator() { return at::detail::getDefaultCPUGenerator(); }

using Named = torch::OrderedDict<std::string, Tensor>;

void copy_all(const Named& to, const Named& from, const char* what, int replica) {
  const at::NoGradGuard not_recorded;
  if (to.size() != from.size()) {
    throw InvalidUsage(
        fmt::format("create: replica {}'s module has {} {}, replica 0's has {}: the "
                    "constructor must build the same module every time",
                    replica, to.size(), what, from.size()));
  }
  for (const auto& item : from) {
    const Tensor* target = to.find(item.key());
    if (target == nullptr || target->sizes() != item.value().sizes()) {
      throw InvalidUsage(fmt::format(
          "create: replica {}'s module has no {} '{}' of shape {}: the constructor must build the "
          "same module every time",
          replica, what, item.key(), tensor::shape_text(item.value())));
    }
    target->copy_(item.value());
  }
}

}  // namespace

DefaultGeneratorState::DefaultGeneratorState() {
  at::Generator generator = default_generator();
  const std::lock_guard lock(generator.mutex());
  state_ = generator.get_state();
}

DefaultGeneratorState::~DefaultGeneratorState() {
  at::Generator generator = default_generator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state_);
}

void take_over(torch::nn::Module& copy, const torch::nn::Module& first, int replica) {
  copy_all(copy.named_parameters(), first.named_parameters(), "parameters", replica);
  copy_all(copy.named_buffers(), first.named_buffers(), "buffers", replica);
}

std::vector<Variable> parameters_as_variables(Strategy& strategy,
                                              const std::vector<torch::nn::Module*>& copies) {
  std::vector<Named> parameters;
  for (torch::nn::Module* module : copies) parameters.push_back(module->named_parameters());
  std::vector<Variable> variables;
  std::set<const at::TensorImpl*> seen;
  for (const auto& item : parameters.front()) {
    if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;  // tied
    auto state = std::make_shared<VariableState>();
    state->name = item.key();
    state->core = strategy.shared_core();
    state->trainable = item.value().requires_grad();
    state->devices = strategy.core().options().worker_devices;
    for (const Named& each : parameters) state->components.push_back(each[item.key()]);
    variables.emplace_back(std::move(state));
  }
  return variables;
}

}  // namespace lockstep::detail
