// scope(), colocate_vars_with() and tower_local_var_scope(): what is entered, and taken back.
#include <fmt/format.h>

#include <optional>

#include "base/log.h"
#include "lockstep/strategy.h"
#include "strategy/variable_state.h"

namespace lockstep {

namespace detail {

class ScopeState {
 public:
  enum class Kind { strategy, colocation, tower_local };

  explicit ScopeState(Kind kind) : kind_(kind) {}

  /// What the thread's stack of this kind must look like for this scope to be the innermost.
  std::size_t depth = 0;
  std::optional<Aggregation> outer_tower_local;

  [[nodiscard]] bool innermost() const {
    const ThreadContext& context = thread_context();
    if (kind_ == Kind::strategy) return context.modes.size() == depth;
    if (kind_ == Kind::colocation) return context.colocations.size() == depth;
    return true;
  }

  void leave() const {
    ThreadContext& context = thread_context();
    if (kind_ == Kind::strategy && context.modes.size() >= depth) context.modes.resize(depth - 1);
    if (kind_ == Kind::colocation && context.colocations.size() >= depth) {
      context.colocations.resize(depth - 1);
    }
    if (kind_ == Kind::tower_local) context.tower_local = outer_tower_local;
  }

 private:
  Kind kind_;
};

}  // namespace detail

using detail::ScopeState;
using detail::thread_context;

Scope::Scope(std::unique_ptr<ScopeState> state) : state_(std::move(state)) {}
Scope::Scope(Scope&& other) noexcept = default;

Scope::~Scope() {
  if (!state_) return;
  if (!state_->innermost()) {
    log_error(
        "a strategy's scope ended out of order: scopes end in the reverse order of beginning, "
        "on the thread that began them");
  }
  state_->leave();
}

void Scope::exit() {
  if (!state_) return;
  if (!state_->innermost()) {
    throw InvalidUsage(
        "this scope is not the innermost one: another strategy scope was entered "
        "inside it, or it was entered on another thread",
        Code::failed_precondition);
  }
  state_->leave();
  state_.reset();
}

Scope Strategy::scope() {
  auto& modes = thread_context().modes;
  if (core_->is_default()) {
    if (has_strategy()) {
      throw InvalidUsage("Must not nest: the default strategy inside the scope of another",
                         Code::failed_precondition);
    }
    return Scope(nullptr);  // stays in its replica context
  }
  detail::require_cross(*core_, "scope");
  modes.push_back({core_.get(), nullptr});
  auto state = std::make_unique<ScopeState>(ScopeState::Kind::strategy);
  state->depth = modes.size();
  return Scope(std::move(state));
}

namespace {

Scope colocate(DeviceList devices) {
  auto& colocations = thread_context().colocations;
  colocations.push_back(std::move(devices));
  auto state = std::make_unique<ScopeState>(ScopeState::Kind::colocation);
  state->depth = colocations.size();
  return Scope(std::move(state));
}

}  // namespace

Scope Strategy::colocate_vars_with(const Variable& variable) {
  detail::require_scope(*core_, "colocate_vars_with");
  if (variable.state().core != core_) {
    throw InvalidUsage(
        fmt::format("colocate_vars_with: variable {} was created under another "
                    "strategy ({}), not under this {}",
                    variable.name(), variable.state().core->name(), name()));
  }
  return colocate(variable.devices());
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
  return colocate(devices.devices());
}

Scope Strategy::tower_local_var_scope(ReduceOp aggregation) {
  detail::require_scope(*core_, "tower_local_var_scope");
  auto state = std::make_unique<ScopeState>(ScopeState::Kind::tower_local);
  state->outer_tower_local = thread_context().tower_local;
  thread_context().tower_local =
      aggregation == ReduceOp::sum ? Aggregation::sum : Aggregation::mean;
  return Scope(std::move(state));
}

}  // namespace lockstep
