// The options of torch's optimizers, by name and value. All copies on all workers must have the
// same ones, or they differ from the next step on.
//
// Options of another type are known to their optimizer only, but for the learning rate.
#pragma once

// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <torch/optim/optimizer.h>

#include <memory>
#include <string>
#include <vector>

namespace lockstep::train {

struct OptionValue {
  std::string name;
  std::string value;
};

/// The learning rate ("lr") first.
std::vector<OptionValue> values_of(const torch::optim::OptimizerOptions& options);

/// Whether all values are the same. True if the type is not one of torch's.
bool same_options(const torch::optim::OptimizerOptions& a, const torch::optim::OptimizerOptions& b);

/// What the parameter groups of an optimizer were made with.
class MadeOptions {
 public:
  explicit MadeOptions(const torch::optim::Optimizer& optimizer);
  /// "momentum 0.8", or "group 0 momentum 0.8" of several groups: the values that are others now,
  /// but for learning rates. Empty: none.
  [[nodiscard]] std::string changed(const torch::optim::Optimizer& optimizer) const;

 private:
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> groups_;
};

}  // namespace lockstep::train
