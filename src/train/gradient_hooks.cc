#include "train/gradient_hooks.h"

#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace lockstep::train {

class GradientHooks::Before : public torch::autograd::FunctionPreHook {
 public:
  Before(const GradientHooks& hooks, int replica) : hooks_(hooks), replica_(replica) {}
  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& gradients) override {
    hooks_.callbacks_.before(replica_);
    return gradients;
  }

 private:
  const GradientHooks& hooks_;
  int replica_;
};

GradientHooks::GradientHooks(const Parameters& parameters, Callbacks callbacks)
    : parameters_(parameters),
      callbacks_(std::move(callbacks)),
      hooks_(parameters.tensors.size()) {}

GradientHooks::~GradientHooks() {
  for (const auto& of_replica : hooks_) {
    for (const Hook& each : of_replica) unhook(each);
  }
}

void GradientHooks::add(int replica, int parameter) {
  hooks_[static_cast<std::size_t>(replica)].push_back(hook(replica, parameter));
}

void GradientHooks::restore(int replica) {
  for (Hook& own : hooks_[static_cast<std::size_t>(replica)]) {
    const Tensor& parameter = parameters_.on(replica, own.parameter);
    if (torch::autograd::impl::try_get_grad_accumulator(parameter) == own.accumulator) continue;
    if (!parameter.requires_grad()) continue;
    unhook(own);
    own = hook(replica, own.parameter);
  }
}

GradientHooks::Hook GradientHooks::hook(int replica, int parameter) const {
  // Held by the hook, because the variable has only a weak pointer to its accumulator.
  std::shared_ptr<torch::autograd::Node> accumulator =
      torch::autograd::impl::grad_accumulator(parameters_.on(replica, parameter));
  using torch::autograd::variable_list;
  const std::uintptr_t after =
      accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
          [this, replica, parameter](const variable_list& outputs, const variable_list&) {
            callbacks_.after(replica, parameter);
            return outputs;
          }));
  auto before = std::make_unique<Before>(*this, replica);
  const torch::autograd::FunctionPreHook* const key = before.get();
  accumulator->add_pre_hook(std::move(before));
  return {parameter, std::move(accumulator), after, key};
}

void GradientHooks::unhook(const Hook& hook) {
  hook.accumulator->del_post_hook(hook.after);
  std::erase_if(hook.accumulator->pre_hooks(),
                [&](const auto& each) { return each.get() == hook.before; });
}

}  // namespace lockstep::train
