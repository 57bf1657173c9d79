// scope(), colocate_vars_with() and tower_local_var_scope(): what is entered, and taken back.
#include <fmt/format.h>

#include <utility>

#include "lockstep/strategy.h"
#include "strategy/variable_state.h"

namespace lockstep {

Scope::Scope(Scope&& other) noexcept : id_(std::exchange(other.id_, detail::ScopeId::none)) {}

Scope::~Scope() { detail::end_scope(id_); }

void Scope::exit() {
  detail::exit_scope(id_);
  id_ = detail::ScopeId::none;
}

Scope Strategy::scope() {
  if (core_->is_default()) {
    if (has_strategy()) {
      throw InvalidUsage("Must not nest: the default strategy inside the scope of another",
                         Code::failed_precondition);
    }
    return Scope(detail::ScopeId::none);  // stays in its replica context
  }
  detail::require_cross(*core_, "scope");
  return Scope(detail::enter_strategy({core_, nullptr}, "scope() of " + name()));
}

Scope Strategy::colocate_vars_with(const Variable& variable) {
  detail::require_scope(*core_, "colocate_vars_with");
  if (variable.state().core != core_) {
    throw InvalidUsage(
        fmt::format("colocate_vars_with: variable {} was created under another "
                    "strategy ({}), not under this {}",
                    variable.name(), variable.state().core->name(), name()));
  }
  return Scope(detail::enter_colocation(variable.devices()));
}

Scope Strategy::colocate_vars_with(const NonSlotVariable& variable) {
  return colocate_vars_with(variable.variable());
}

Scope Strategy::colocate_vars_with(const NonSlotDevices& devices) {
  return colocate_vars_with(Destinations(devices.devices));
}

Scope Strategy::colocate_vars_with(const Destinations& devices) {
  detail::require_scope(*core_, "colocate_vars_with");
  if (devices.devices().empty()) {
    throw InvalidUsage("colocate_vars_with: destinations can not be empty");
  }
  core_->options().device_table.check(devices.devices());
  return Scope(detail::enter_colocation(devices.devices()));
}

Scope Strategy::tower_local_var_scope(ReduceOp aggregation) {
  detail::require_scope(*core_, "tower_local_var_scope");
  if (aggregation.picks()) {
    throw InvalidUsage(
        fmt::format("tower_local_var_scope: variables are aggregated by sum or mean, not by {}",
                    aggregation.name()));
  }
  return Scope(detail::enter_tower_local(aggregation == ReduceOp::sum ? Aggregation::sum
                                                                      : Aggregation::mean));
}

}  // namespace lockstep
