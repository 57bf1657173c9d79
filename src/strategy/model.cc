#include "lockstep/model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

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
    if (target->is_same(item.value())) {
      throw InvalidUsage(fmt::format(
          "create: replica {}'s {} '{}' is the same tensor as replica 0's: the constructor was "
          "given "
          "a tensor and keeps it; each replica needs one of its own, so clone() it there",
          replica, what, item.key()));
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

void take_from_chief(Strategy& strategy, torch::nn::Module& first) {
  Workers* workers = strategy.core().workers();
  if (workers == nullptr) return;
  std::vector<Trait> traits;
  std::vector<Tensor> tensors;
  for (const Named& each : {first.named_parameters(), first.named_buffers()}) {
    for (const auto& item : each) {
      traits.push_back(
          {"tensor", fmt::format("{} {} {}", item.key(), tensor::shape_text(item.value()),
                                 c10::toString(item.value().scalar_type()))});
      tensors.push_back(item.value().detach());
    }
  }
  workers->require_alike("create: the parameters and buffers of the net", traits);
  workers->broadcast(tensors, "create");
}

void sync_buffers(StrategyCore& core, const std::vector<torch::nn::Module*>& copies,
                  BufferSync how) {
  const CrossEntry entry(core, "sync_buffers");
  const at::NoGradGuard not_recorded;
  std::vector<Named> buffers;
  for (const torch::nn::Module* module : copies) buffers.push_back(module->named_buffers());
  for (const auto& item : buffers.front()) {
    std::vector<Tensor> each;
    for (const Named& own : buffers) each.push_back(own[item.key()].detach());
    const bool mean = how == BufferSync::mean && item.value().is_floating_point();
    Tensor value = each.front();
    if (mean) {
      value = core.ops().reduce(ReduceOp::mean, PerReplica<Tensor>(each, core.devices()),
                                Destinations(core.options().worker_devices))[0];
    } else if (Workers* workers = core.workers()) {
      value = workers->from_chief(value, item.key());
    }
    for (const Tensor& buffer : each) {
      if (!buffer.is_same(value)) buffer.copy_(value);
    }
  }
}

std::uint64_t digest_of(const torch::nn::Module& module) {
  std::uint64_t digest = 0;
  for (const Tensor& parameter : module.parameters()) {
    const Tensor dense = parameter.detach().contiguous();
    digest = XXH3_64bits_withSeed(dense.data_ptr(), dense.nbytes(), digest);
  }
  return digest;
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
