// Seeding, saving and restoring the replicas' random generators.
// clang-format off
#include "lockstep/strategy.h"  // before libtorch's own
// clang-format on
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include <mutex>

#include "strategy/core.h"

namespace lockstep {

using detail::CrossEntry;
using detail::Leading;
using detail::StrategyCore;

namespace {

/// Those of this process, in replica order.
std::vector<Tensor> local_states(StrategyCore& core) {
  std::vector<Tensor> states;
  for (int i = 0; i < core.replicas(); ++i) states.push_back(core.generator(i).state());
  return states;
}

/// All or none: a state that is refused leaves every generator as it was.
void set_local_states(StrategyCore& core, std::span<const Tensor> states) {
  const std::vector<Tensor> before = local_states(core);
  int i = 0;
  try {
    for (; i < core.replicas(); ++i) {
      core.generator(i).set_state(states[static_cast<std::size_t>(i)]);
    }
  } catch (const InvalidUsage& error) {
    const int refused = core.first_replica() + i;
    for (i = 0; i < core.replicas(); ++i) {
      core.generator(i).set_state(before[static_cast<std::size_t>(i)]);
    }
    throw InvalidUsage(fmt::format("set_generator_state: replica {}'s: {}", refused, error.what()));
  }
}

}  // namespace

void Strategy::manual_seed(std::uint64_t seed, Here here) {
  const CrossEntry entry(*core_, "manual_seed", here);
  if (core_->is_default()) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(seed);
    return;
  }
  const Leading leading(core_->leadership(), name());
  if (detail::Workers* workers = core_->workers()) {
    workers->require_alike("manual_seed", {{"seed", std::to_string(seed)}});
  }
  core_->reseed(seed);
}

std::vector<Tensor> Strategy::generator_state(Here here) {
  const CrossEntry entry(*core_, "generator_state", here);
  if (core_->is_default()) return {at::detail::getDefaultCPUGenerator().get_state()};
  const Leading leading(core_->leadership(), name());
  std::vector<Tensor> states = local_states(*core_);
  if (detail::Workers* workers = core_->workers()) {
    states = at::cat(workers->gather(at::stack(states), "generator_state")).unbind(0);
    for (Tensor& state : states) state = state.clone();  // a file of one has not all in it
  }
  return states;
}

void Strategy::set_generator_state(const std::vector<Tensor>& states) {
  const CrossEntry entry(*core_, "set_generator_state");
  if (static_cast<int>(states.size()) != core_->replicas_in_sync()) {
    throw InvalidUsage(
        fmt::format("set_generator_state: {} states, but {} has {} replicas: each replica has its "
                    "own; with another number of replicas begin with manual_seed()",
                    states.size(), name(), core_->replicas_in_sync()));
  }
  if (core_->is_default()) {
    tensor::set_generator_state(at::detail::getDefaultCPUGenerator(), states.front());
    return;
  }
  const Leading leading(core_->leadership(), name());
  set_local_states(*core_,
                   std::span(states).subspan(static_cast<std::size_t>(core_->first_replica()),
                                             static_cast<std::size_t>(core_->replicas())));
}

}  // namespace lockstep
