#include "train/fixed_properties.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/error.h"
#include "tensor/torch_text.h"

namespace lockstep::train {

FixedProperties::FixedProperties(const detail::StrategyCore& strategy, const Parameters& parameters)
    : strategy_(strategy), parameters_(parameters) {
  for (int p = 0; p < parameters_.count(); ++p) {
    trainable_.push_back(parameters_.on(0, p).requires_grad());
  }
  if (std::find(trainable_.begin(), trainable_.end(), true) == trainable_.end()) {
    throw InvalidUsage(
        fmt::format("optimizer: none of its {} variables is trainable (the first is {}): "
                    "requires_grad is false for all. Unfreeze some before the optimizer is made",
                    parameters_.count(), parameters_.name(0)));
  }
}

void FixedProperties::add_groups_of(const torch::optim::Optimizer& optimizer) {
  std::vector<std::size_t>& sizes = group_sizes_.emplace_back();
  for (const auto& group : optimizer.param_groups()) sizes.push_back(group.params().size());
}

void FixedProperties::fix_types() {
  if (!types_.empty()) return;
  for (int p = 0; p < parameters_.count(); ++p) {
    types_.push_back(parameters_.on(0, p).scalar_type());
  }
}

void FixedProperties::require_trainable_as_made(int replica, int parameter) const {
  const bool trainable = parameters_.on(replica, parameter).requires_grad();
  if (trainable == trainable_[static_cast<std::size_t>(parameter)]) return;
  throw InvalidUsage(
      fmt::format("apply: parameter {} was {} when the optimizer was made and is not so any "
                  "more; make another optimizer after freezing or unfreezing",
                  parameters_.name(parameter), trainable ? "frozen" : "trainable"),
      Code::failed_precondition);
}

void FixedProperties::require_same_type(int replica, int parameter) const {
  const auto number = static_cast<std::size_t>(parameter);
  const at::ScalarType now = parameters_.on(replica, parameter).scalar_type();
  if (types_.empty() || types_[number] == now) return;
  throw InvalidUsage(
      fmt::format(
          "apply: parameter {} was {} in the optimizer's first step and is {} now. Convert the "
          "module (to()) on every copy of every worker before the first step, or make another "
          "optimizer",
          parameters_.name(parameter), c10::toString(types_[number]), c10::toString(now)),
      Code::failed_precondition);
}

void FixedProperties::require_shape(int replica, int parameter) const {
  const Tensor& own = parameters_.on(replica, parameter);
  if (own.grad().sizes() == own.sizes()) return;
  throw InvalidUsage(fmt::format(
      "the gradient of {} is {}, the parameter {}: something of another "
      "shape was put into .grad",
      parameters_.name(parameter), tensor::shape_text(own.grad()), tensor::shape_text(own)));
}

// The exchange does not know the parameters of a group that was added to one of torch's optimizers,
// so it would not sum their gradients.
void FixedProperties::require_same_groups(int replica, const torch::optim::Optimizer& optimizer,
                                          const std::string& type) const {
  const auto& own = optimizer.param_groups();
  const std::vector<std::size_t>& made_with = group_sizes_[static_cast<std::size_t>(replica)];
  const bool same =
      std::equal(own.begin(), own.end(), made_with.begin(), made_with.end(),
                 [](const auto& group, std::size_t size) { return group.params().size() == size; });
  if (same) return;
  throw InvalidUsage(
      fmt::format(
          "apply: replica {}'s {} has other parameter groups than it was made with ({} of them, "
          "now {}): add_param_group() on local() adds parameters whose gradients are not summed "
          "over the replicas. Make another optimizer with all groups (ParameterGroup)",
          strategy_.first_replica() + replica, type, made_with.size(), own.size()),
      Code::failed_precondition);
}

}  // namespace lockstep::train
