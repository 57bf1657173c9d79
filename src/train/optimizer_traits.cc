// What the workers' optimizers must be alike in: another list of parameters would add up what does
// not belong together, and another momentum would let the copies drift apart without a word.
#include <fmt/format.h>

#include "tensor/torch_text.h"
#include "train/optimizer_core.h"
#include "train/optimizer_options.h"

namespace lockstep::detail {

// Before anything is sent.
void OptimizerCore::compare_workers() const {
  Workers* workers = strategy_->workers();
  if (workers == nullptr) return;
  std::vector<Trait> traits = {
      {"type", type_},
      {"allow_unused", fmt::to_string(options_.allow_unused)},
      {"overlap", fmt::to_string(static_cast<int>(options_.overlap))},
      {"bucket_bytes", fmt::to_string(options_.bucket_bytes)},
      {"wire", fmt::to_string(static_cast<int>(options_.wire))},
      {"check_every", fmt::to_string(options_.check_every)},
      {"non_finite", fmt::to_string(static_cast<int>(options_.non_finite))},
      {"number of groups", fmt::to_string(groups_.size())}};
  const auto& own_groups = optimizer(0).param_groups();
  for (std::size_t g = 0; g < own_groups.size(); ++g) {
    for (const train::OptionValue& each : train::values_of(own_groups[g].options())) {
      traits.push_back({fmt::format("group {} {}", g, each.name), each.value});
    }
    traits.push_back({fmt::format("group {} number of variables", g),
                      fmt::to_string(own_groups[g].params().size())});
  }
  for (const Variable& variable : parameters_.variables) {
    const Tensor own = variable[0];
    traits.push_back(
        {"variable",
         fmt::format("{} {} {}{}", variable.name(), tensor::shape_text(own),
                     c10::toString(own.scalar_type()), own.requires_grad() ? "" : ", frozen")});
  }
  workers->require_alike("optimizer", traits);
}

}  // namespace lockstep::detail
