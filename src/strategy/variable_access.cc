#include "strategy/variable_access.h"

namespace lockstep::detail {

int index_on(const VariableState& state, const Device& device) {
  for (std::size_t i = 0; i < state.devices.size(); ++i) {
    if (state.devices[i] == device) return static_cast<int>(i);
  }
  return -1;
}

Standing standing(const VariableState& state) {
  using Place = Standing::Place;
  if (state.core->is_default()) return {Place::plain};
  const ThreadContext& context = thread_context();
  if (context.modes.empty()) return {Place::cross};
  const Mode& top = context.modes.back();
  if (top.core != state.core) {
    wrong_context(
        fmt::format("Mixing different Strategy objects: variable {} was created under {} "
                    "and is used under another strategy ({})",
                    state.name, state.core->name(), top.core->name()));
  }
  if (top.replica != nullptr) {
    if (state.components.size() == 1 && !state.on_read()) return {Place::replica, 0};
    const int index = index_on(state, top.replica->device());
    if (index < 0) {
      wrong_context(fmt::format("variable {} has no copy on {}, where this replica runs",
                                state.name, top.replica->device().str()));
    }
    return {Place::replica, index};
  }
  if (context.updating) {
    const int index = index_on(state, context.updating->device);
    if (index >= 0) return {Place::updating, index};
  }
  return {Place::cross};
}

void on_copies(const Variable& variable, const char* method,
               const std::function<void(const Tensor&, const UpdateTarget&)>& fn) {
  const VariableState& state = variable.state();
  run_updates(state.core->strategy(), method, variable,
              [&](const UpdateTarget& target) { fn(component(state, target.index), target); });
}

Tensor of_first_replica(const VariableState& state, const Tensor& first_here) {
  Workers* workers = state.core->workers();
  return workers != nullptr ? workers->from_chief(first_here, state.name)
                            : first_here.detach().clone();
}

bool writes_alone(const VariableState& state) {
  return state.on_read() ||
         (state.aggregation == Aggregation::none && state.core->replicas_in_sync() == 1);
}

void require_aggregation(const VariableState& state, std::string_view method) {
  if (state.aggregation != Aggregation::none) return;
  wrong_value(fmt::format(
      "{} of variable {} inside a step function: it has no aggregation, so the copies would "
      "differ. "
      "Create it with aggregation sum, mean or only_first_replica, or write this replica's copy "
      "alone with assign_local",
      method, state.name));
}

ReduceOp reduce_op_of(const VariableState& state) {
  if (state.aggregation == Aggregation::sum) return ReduceOp::sum;
  if (state.aggregation == Aggregation::mean) return ReduceOp::mean;
  wrong_value(fmt::format(
      "Could not convert from VariableAggregation {} to ReduceOp: variable {} "
      "has no one value outside of step functions",
      state.aggregation == Aggregation::none ? "NONE" : "ONLY_FIRST_REPLICA", state.name));
}

}  // namespace lockstep::detail
