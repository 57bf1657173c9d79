// ParameterWatch: whether something other than the optimizer has changed the parameters of a copy
// since its last step: written to them, or given them other memory (torch::load, Module::to). A
// write through data() counts no version and is not seen.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/tensor.h"

namespace lockstep::train {

class ParameterWatch {
 public:
  /// From here on.
  void begin(const std::vector<Tensor>& parameters) {
    seen_.clear();
    for (const Tensor& parameter : parameters) seen_.push_back(look_at(parameter));
  }
  /// Another optimizer has stepped this one.
  void accept(const std::vector<Tensor>& parameters, int number) {
    const auto i = static_cast<std::size_t>(number);
    seen_[i] = look_at(parameters[i]);
  }
  [[nodiscard]] bool has_changed(const std::vector<Tensor>& parameters) const {
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      if (look_at(parameters[i]) != seen_[i]) return true;
    }
    return false;
  }

 private:
  struct Look {
    const void* memory = nullptr;
    std::uint32_t version = 0;
    bool operator==(const Look&) const = default;
  };

  static Look look_at(const Tensor& parameter) {
    const at::TensorImpl& impl = *parameter.unsafeGetTensorImpl();
    return {impl.has_storage() ? impl.storage().data() : nullptr,
            impl.version_counter().current_version()};
  }

  std::vector<Look> seen_;  // by parameter
};

}  // namespace lockstep::train
