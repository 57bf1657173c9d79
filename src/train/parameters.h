// Parameters: the parameters of an optimizer, by number, on every copy of this process.
#pragma once

#include <string>
#include <vector>

#include "lockstep/optimizer.h"

namespace lockstep::train {

struct Parameters {
  std::vector<Variable> variables;
  std::vector<std::vector<Tensor>> tensors;  // [copy][parameter]

  [[nodiscard]] int count() const noexcept { return static_cast<int>(variables.size()); }
  [[nodiscard]] const Tensor& on(int copy, int parameter) const {
    return tensors[static_cast<std::size_t>(copy)][static_cast<std::size_t>(parameter)];
  }
  [[nodiscard]] const std::string& name(int parameter) const {
    return variables[static_cast<std::size_t>(parameter)].name();
  }
  /// The number of the parameter that is this variable, or -1.
  [[nodiscard]] int number_of(const Variable& variable) const;
};

/// The variables of all groups. InvalidUsage if there are none, if one is given twice or is another
/// strategy's, or if they have different numbers of copies.
Parameters collect_parameters(const detail::StrategyCore& strategy,
                              const std::vector<ParameterGroup>& groups);

}  // namespace lockstep::train
