#include "lockstep/verify.h"

#include <ATen/ops/allclose.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>

#include "strategy/thread_context.h"
#include "train/optimizer_core.h"

namespace lockstep::detail {

struct OutsideOfScopes::State {
  ContextSwap swap{ThreadContext{}};
};
OutsideOfScopes::OutsideOfScopes() : state_(std::make_unique<State>()) {}
OutsideOfScopes::~OutsideOfScopes() = default;

DistributedOptimizer optimizer_like(const DistributedOptimizer& other, Strategy& strategy,
                                    const std::vector<Variable>& variables) {
  // The optimizer may have them in another order, and not all.
  std::vector<Variable> its_own;
  for (const Variable& stepped : other.core().parameters().variables) {
    const auto found = std::find_if(variables.begin(), variables.end(), [&](const Variable& each) {
      return each.name() == stepped.name();
    });
    if (found == variables.end()) {
      throw InvalidUsage(
          fmt::format("verify_against_single: the optimizer steps {}, which is no parameter of the "
                      "net that is to be verified",
                      stepped.name()));
    }
    its_own.push_back(*found);
  }
  DistributedOptimizer like(other.core().over(strategy, its_own));
  // Rates and the rest as they are now: the program may have changed them.
  const auto& now = other.core().optimizer(0).param_groups();
  auto& groups = like.core().optimizer(0).param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i].set_options(now[i].options().clone());
  return like;
}

GradientRecorder::GradientRecorder(const DistributedOptimizer& optimizer) : optimizer_(optimizer) {
  optimizer_.core().observe([this](const train::Parameters& parameters) {
    last_.clear();
    for (int p = 0; p < parameters.count(); ++p) {
      const Tensor gradient = parameters.on(0, p).grad();
      if (!gradient.defined()) continue;
      last_.emplace_back("gradient of " + parameters.variables[static_cast<std::size_t>(p)].name(),
                         gradient.is_sparse() ? gradient.to_dense() : gradient.clone());
    }
  });
}
GradientRecorder::~GradientRecorder() { optimizer_.core().observe({}); }

void require_unused(const DistributedOptimizer& optimizer, const VerifyOptions& options) {
  if (options.steps < 1) {
    throw InvalidUsage(
        fmt::format("verify_against_single: {} steps; at least 1 is needed", options.steps));
  }
  if (optimizer.iterations() > 0) {
    throw InvalidUsage(
        fmt::format("verify_against_single: the optimizer has taken {} steps already, whose state "
                    "another one does not have; verify before the first step",
                    optimizer.iterations()),
        Code::failed_precondition);
  }
}

namespace {

void copy_modes(const torch::nn::Module& from, torch::nn::Module& to) {
  to.train(from.is_training());  // and everything below, which then says otherwise
  const auto children = from.children();
  const auto copies = to.children();
  for (std::size_t i = 0; i < children.size(); ++i) copy_modes(*children[i], *copies[i]);
}

}  // namespace

void copy_state(const torch::nn::Module& from, torch::nn::Module& to) {
  const at::NoGradGuard not_recorded;
  const auto parameters = to.named_parameters();
  for (const auto& item : from.named_parameters()) {
    const Tensor& copy = parameters[item.key()];
    copy.copy_(item.value());
    copy.requires_grad_(item.value().requires_grad());
  }
  const auto buffers = to.named_buffers();
  for (const auto& item : from.named_buffers()) {
    const Tensor& copy = buffers[item.key()];
    copy.copy_(item.value());
  }
  copy_modes(from, to);
}

void add_parameters(StepRecord& record, const std::vector<Variable>& variables) {
  for (const Variable& variable : variables) {
    record.tensors.emplace_back("parameter " + variable.name(), variable[0].detach().clone());
  }
}

void compare_steps(const StepRecord& distributed, const StepRecord& single, int step,
                   const VerifyOptions& options) {
  if (distributed.tensors.size() != single.tensors.size()) {
    throw Mismatch(
        fmt::format("step {}: the replicas have {} gradients and parameters, one replica "
                    "alone {}: some are used by one of them only",
                    step, distributed.tensors.size(), single.tensors.size()));
  }
  for (std::size_t i = 0; i < single.tensors.size(); ++i) {
    const auto& [name, expected] = single.tensors[i];
    const Tensor own = distributed.tensors[i].second.to(expected.scalar_type());
    if (at::allclose(own, expected, options.relative, options.absolute)) continue;
    throw Mismatch(
        fmt::format("step {}: the {} differs from that of one replica with all rows by up "
                    "to {:.3g}: the step function is not a sum over rows (a mean of each "
                    "replica's own rows, statistics of a batch), or it is random",
                    step, name, (own - expected).abs().max().item<double>()));
  }
}

}  // namespace lockstep::detail
