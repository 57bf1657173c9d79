#include "lockstep/model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <mutex>
#include <set>

#include "strategy/meet_before_throwing.h"
#include "strategy/variable_state.h"
#include "tensor/torch_text.h"

namespace lockstep::detail {

namespace {

at::Generator default_generator() { return at::detail::getDefaultCPUGenerator(); }

using Named = torch::OrderedDict<std::string, Tensor>;

std::uint64_t digest_of(const std::vector<Tensor>& tensors, std::uint64_t seed = 0) {
  std::uint64_t digest = seed;
  for (const Tensor& tensor : tensors) {
    const Tensor dense = (tensor.is_sparse() ? tensor.to_dense() : tensor).detach().contiguous();
    digest = XXH3_64bits_withSeed(dense.data_ptr(), dense.nbytes(), digest);
  }
  return digest;
}

/// The chief's values; nothing to do for one worker.
void take_from_chief(StrategyCore& core, const std::vector<Named>& all, const char* what) {
  Workers* workers = core.workers();
  if (workers == nullptr) return;
  std::vector<Trait> traits;
  std::vector<Tensor> tensors;
  for (const Named& each : all) {
    for (const auto& item : each) {
      traits.push_back(
          {"tensor", fmt::format("{} {} {}", item.key(), tensor::shape_text(item.value()),
                                 c10::toString(item.value().scalar_type()))});
      tensors.push_back(item.value().detach());
    }
  }
  workers->require_alike(what, traits);
  workers->broadcast(tensors, what);
}

void copy_all(const Named& to, const Named& from, const char* verb, const char* what, int replica) {
  const at::NoGradGuard not_recorded;
  if (to.size() != from.size()) {
    throw InvalidUsage(
        fmt::format("{}: replica {}'s module has {} {}, replica 0's has {}: the "
                    "constructor must build the same module every time",
                    verb, replica, to.size(), what, from.size()));
  }
  for (const auto& item : from) {
    const Tensor* target = to.find(item.key());
    if (target == nullptr || target->sizes() != item.value().sizes() ||
        target->scalar_type() != item.value().scalar_type()) {
      throw InvalidUsage(fmt::format(
          "{}: replica {}'s module has no '{}' of shape {} and type {} among its {}: the "
          "constructor must build the same module every time",
          verb, replica, item.key(), tensor::shape_text(item.value()),
          c10::toString(item.value().scalar_type()), what));
    }
    if (target->is_same(item.value())) {
      throw InvalidUsage(fmt::format(
          "{}: replica {}'s {} '{}' is the same tensor as replica 0's: the constructor was given "
          "a tensor and keeps it; each replica needs one of its own, so clone() it there",
          verb, replica, what, item.key()));
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
  copy_all(copy.named_parameters(), first.named_parameters(), "create", "parameters", replica);
  copy_all(copy.named_buffers(), first.named_buffers(), "create", "buffers", replica);
}

void take_from_chief(Strategy& strategy, torch::nn::Module& first) {
  take_from_chief(strategy.core(), {first.named_parameters(), first.named_buffers()},
                  "create: the parameters and buffers of the net");
}

void sync_parameters(StrategyCore& core, const std::vector<torch::nn::Module*>& copies, Here here) {
  const CrossEntry entry(core, "sync_parameters", here);
  const Turn turn(core);
  const Named first = copies.front()->named_parameters();
  take_from_chief(core, {first}, "sync_parameters: the parameters of the net");
  for (std::size_t i = 1; i < copies.size(); ++i) {
    copy_all(copies[i]->named_parameters(), first, "sync_parameters", "parameters",
             static_cast<int>(i));
  }
}

void require_equal_copies(Strategy& strategy, const std::vector<torch::nn::Module*>& copies) {
  Workers* workers = strategy.core().workers();
  if (workers == nullptr && copies.size() == 1) return;
  std::vector<std::int64_t> digests;
  for (const torch::nn::Module* copy : copies) {
    digests.push_back(
        static_cast<std::int64_t>(digest_of(copy->buffers(), digest_of(copy->parameters()))));
  }
  if (workers != nullptr) digests = workers->gather(digests, "create: digests of the copies");
  for (std::size_t i = 1; i < digests.size(); ++i) {
    if (digests[i] == digests[0]) continue;
    const auto worker = static_cast<int>(i / copies.size());
    meet_before_throwing(workers);
    throw Mismatch(
        fmt::format("create: the parameters and buffers of replica {} (worker {}) differ from "
                    "replica 0's, which it took over: something has written one of them since, "
                    "such as the constructor of another copy",
                    i, worker),
        Code::data_loss, {worker});
  }
}

void sync_buffers(StrategyCore& core, const std::vector<torch::nn::Module*>& copies, BufferSync how,
                  Here here) {
  const CrossEntry entry(core, "sync_buffers", here);
  const Turn turn(core);
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

std::uint64_t digest_of(const torch::nn::Module& module) { return digest_of(module.parameters()); }

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
