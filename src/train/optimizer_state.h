// What torch's optimizers keep for a parameter: tensors by name, and a number of steps. What an
// optimizer of another type keeps is known to itself only.
#pragma once

// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <ATen/core/TensorBase.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::train {

struct ParameterState {
  std::vector<std::pair<std::string, Tensor>> tensors;  // that are defined
  std::int64_t steps = 0;
  bool is_known = true;  // false: there is one, of a type that is not torch's
  bool is_slot = true;   // false: it is the whole optimizer's, kept under the first parameter
};

/// Empty before the first step, and of an optimizer that is not torch's.
ParameterState state_of(const torch::optim::Optimizer& optimizer, const Tensor& parameter);

/// Finds out whether something other than the optimizer's step has changed its state: torch::load,
/// or a write to a tensor. A write through data() is not seen.
///
/// Threads: one at a time, and none that steps the optimizer meanwhile.
class StateWatch {
 public:
  /// The optimizer must outlive this.
  explicit StateWatch(const torch::optim::Optimizer& optimizer) : optimizer_(optimizer) {}

  /// Accepts the state as it is.
  void begin();
  [[nodiscard]] bool has_changed() const;

 private:
  // Held weakly: the memory can go, and no other tensor gets its address.
  using WeakTensor = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>;
  struct Look {
    WeakTensor tensor;
    std::uint32_t version;
  };

  const torch::optim::Optimizer& optimizer_;
  std::vector<Look> seen_;
  std::int64_t steps_ = 0;  // of all parameters together
};

}  // namespace lockstep::train
