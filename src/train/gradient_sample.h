// GradientSample: a few elements of a gradient, to see whether something was written to it later.
// A write through data() counts no version, and torch's clip_grad_norm_ writes so.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "lockstep/tensor.h"

namespace lockstep::train {

class GradientSample {
 public:
  GradientSample() = default;
  /// Where it lies, and, if it is dense, the first element, the last one and one between.
  explicit GradientSample(const Tensor& gradient) {
    if (!gradient.defined() || gradient.layout() != at::kStrided || !gradient.device().is_cpu() ||
        gradient.numel() == 0) {
      return;
    }
    memory_ = gradient.data_ptr();
    version_ = gradient.unsafeGetTensorImpl()->version_counter().current_version();
    if (!gradient.is_non_overlapping_and_dense()) return;
    const std::size_t width = gradient.element_size();
    if (width > kWidth) return;
    const auto last = static_cast<std::size_t>(gradient.numel()) - 1;
    std::size_t next = 0;
    for (const std::size_t element : {std::size_t{0}, last / 2, last}) {
      const auto* from = static_cast<const std::byte*>(memory_) + element * width;
      std::memcpy(bytes_.data() + kWidth * next++, from, width);
    }
  }

  /// Whether the memory is the same and what lies there is not.
  [[nodiscard]] bool was_written(const Tensor& gradient) const {
    const GradientSample now(gradient);
    return memory_ != nullptr && now.memory_ == memory_ && now.bytes_ != bytes_;
  }
  /// Whether the memory is the same and a write to it was counted, whatever was written.
  [[nodiscard]] bool has_another_version(const Tensor& gradient) const {
    const GradientSample now(gradient);
    return memory_ != nullptr && now.memory_ == memory_ && now.version_ != version_;
  }
  /// Whether it is another tensor.
  [[nodiscard]] bool was_replaced(const Tensor& gradient) const {
    return memory_ != nullptr && GradientSample(gradient).memory_ != memory_;
  }

 private:
  static constexpr std::size_t kWidth = 16;  // bytes of the widest element
  const void* memory_ = nullptr;
  std::uint32_t version_ = 0;
  std::array<std::byte, 3 * kWidth> bytes_ = {};
};

}  // namespace lockstep::train
