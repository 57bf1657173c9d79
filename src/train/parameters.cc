#include "train/parameters.h"

#include <fmt/format.h>

#include "lockstep/error.h"
#include "strategy/core.h"
#include "strategy/variable_state.h"

namespace lockstep::train {

namespace {

void check_variable(const Variable& variable, const Parameters& before,
                    const detail::StrategyCore& strategy) {
  if (before.number_of(variable) >= 0) {
    throw InvalidUsage(fmt::format(
        "optimizer: variable {} is given twice; it would be stepped twice", variable.name()));
  }
  if (variable.state().core.get() != &strategy) {
    throw InvalidUsage(
        fmt::format("Mixing different Strategy objects: optimizer of variable {}, which "
                    "another strategy ({}) created",
                    variable.name(), variable.state().core->name()),
        Code::failed_precondition);
  }
  if (before.variables.empty()) return;
  const Variable& first = before.variables.front();
  if (variable.size() != first.size()) {
    throw InvalidUsage(
        fmt::format("optimizer: variable {} has {} copies, variable {} has {}: those of one "
                    "optimizer must have as many; make one for each kind",
                    first.name(), first.size(), variable.name(), variable.size()),
        Code::failed_precondition);
  }
}

}  // namespace

int Parameters::number_of(const Variable& variable) const {
  for (int p = 0; p < count(); ++p) {
    if (&variables[static_cast<std::size_t>(p)].state() == &variable.state()) return p;
  }
  return -1;
}

Parameters collect_parameters(const detail::StrategyCore& strategy,
                              const std::vector<ParameterGroup>& groups) {
  Parameters parameters;
  for (const ParameterGroup& group : groups) {
    for (const Variable& variable : group.variables) {
      check_variable(variable, parameters, strategy);
      parameters.variables.push_back(variable);
    }
  }
  if (parameters.variables.empty()) throw InvalidUsage("optimizer: No variables provided");
  for (int c = 0; c < parameters.variables.front().size(); ++c) {
    std::vector<Tensor>& tensors = parameters.tensors.emplace_back();
    for (const Variable& variable : parameters.variables) tensors.emplace_back(variable[c]);
  }
  return parameters;
}

}  // namespace lockstep::train
