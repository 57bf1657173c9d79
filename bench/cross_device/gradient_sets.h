// The shapes of the gradients of well-known nets, in the order of their parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::bench {

struct GradientSet {
  std::string name;
  std::vector<std::vector<std::int64_t>> shapes;

  [[nodiscard]] std::int64_t elements() const;
};

/// 161 tensors, 25.6 million parameters: many small ones between a few large ones.
GradientSet resnet50();
/// A transformer encoder of 12 layers, 199 tensors, 109 million parameters.
GradientSet bert_base();

}  // namespace lockstep::bench
