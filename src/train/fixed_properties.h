// FixedProperties: what the user must not change after an optimizer was made, since the workers'
// steps would no longer agree: which parameters are trainable, their element types, and the
// parameter groups of each copy's torch::optim::Optimizer.
//
// Each require_ function throws InvalidUsage naming the parameter or the replica.
//
// Threads: the require_ functions on any replica's thread; fix_types() by one thread while the
// replicas wait.
#pragma once

// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <torch/optim/optimizer.h>

#include <string>
#include <vector>

#include "strategy/core.h"
#include "train/parameters.h"

namespace lockstep::train {

class FixedProperties {
 public:
  /// Takes down which parameters are trainable. InvalidUsage if none is. Both outlive this object.
  FixedProperties(const detail::StrategyCore& strategy, const Parameters& parameters);
  /// Takes down the groups of the next copy's optimizer.
  void add_groups_of(const torch::optim::Optimizer& optimizer);
  /// Takes down the element types. Only the first call counts: modules may be converted before the
  /// first step.
  void fix_types();

  void require_trainable_as_made(int replica, int parameter) const;
  void require_same_type(int replica, int parameter) const;
  /// The gradient has the shape of its parameter.
  void require_shape(int replica, int parameter) const;
  /// `type` is the optimizer's, for the message.
  void require_same_groups(int replica, const torch::optim::Optimizer& optimizer,
                           const std::string& type) const;

 private:
  const detail::StrategyCore& strategy_;
  const Parameters& parameters_;
  std::vector<bool> trainable_;                        // by parameter
  std::vector<at::ScalarType> types_;                  // by parameter; empty before the first step
  std::vector<std::vector<std::size_t>> group_sizes_;  // by copy
};

}  // namespace lockstep::train
