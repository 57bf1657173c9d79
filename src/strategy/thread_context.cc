#include "strategy/thread_context.h"

#include <fmt/format.h>

#include <utility>

#include "strategy/core.h"

namespace lockstep::detail {

namespace {

/// The strategy that is current on this thread; of another strategy's call.
void require_alive(const StrategyCore& current, const char* method) {
  if (!current.is_gone()) return;
  wrong_context(
      fmt::format("{}: the {} that is current on this thread is gone: end its scope first, or call "
                  "set_strategy(nullptr)",
                  method, current.name()));
}
}  // namespace

ThreadContext& thread_context() {
  thread_local ThreadContext context;
  end_what_others_destroyed(context);
  return context;
}

namespace {
thread_local ContextSwap* innermost_swap = nullptr;
}

ContextSwap::ContextSwap(ThreadContext context)
    : other_(std::move(context)), outer_(innermost_swap) {
  other_.scopes.clear();
  std::swap(thread_context(), other_);
  innermost_swap = this;
}

ContextSwap::~ContextSwap() {
  std::swap(thread_context(), other_);  // first: it may have to end a scope of the other one
  innermost_swap = outer_;
}

ContextSwap* ContextSwap::innermost() noexcept { return innermost_swap; }

StrategyCore& current_core() {
  const auto& modes = thread_context().modes;
  return modes.empty() ? default_core() : *modes.back().core;
}

void require_cross(const StrategyCore& core, const char* method) {
  const auto& modes = thread_context().modes;
  if (modes.empty()) return;  // outside of everything: the verb enters the strategy itself
  const Mode& top = modes.back();
  if (top.core.get() == &core) {
    if (top.replica == nullptr) return;
    wrong_context(fmt::format(
        "{} was called inside a step function of {}: Method requires being in cross-replica "
        "context, use get_replica_context().merge_call()",
        method, core.name()));
  }
  if (top.core->is_default()) {
    wrong_context(fmt::format("Need to be inside scope() of {} for {}", core.name(), method));
  }
  require_alive(*top.core, method);
  wrong_context(fmt::format(
      "Mixing different Strategy objects: {} was called on one {} inside the scope of another "
      "strategy ({}); {} is not {}",
      method, core.name(), top.core->name(), static_cast<const void*>(top.core.get()),
      static_cast<const void*>(&core)));
}

void require_replica(const ReplicaContext& replica, const char* method) {
  const ReplicaState& state = replica.state();
  const auto& modes = thread_context().modes;
  const ReplicaContext* top = modes.empty() ? &default_replica() : modes.back().replica;
  if (top == &replica) return;
  if (top == nullptr || modes.empty()) {
    wrong_context(fmt::format(
        "{}: Need to be inside run() (call_for_each_replica()): this ReplicaContext belongs to the "
        "step function it was given to, and to that function's thread",
        method));
  }
  if (top->state().core == state.core) {
    wrong_context(
        fmt::format("{}: Mismatching ReplicaContext: this one is replica {}'s, the "
                    "thread runs replica {}",
                    method, state.index, top->state().index));
  }
  wrong_context(fmt::format("{}: Mismatching Strategy objects: {} and {}", method,
                            state.core->name(), top->state().core->name()));
}

void require_scope(const StrategyCore& core, const char* method) {
  const StrategyCore& current = current_core();
  if (&current == &core) return;
  if (current.is_default()) {
    wrong_context(fmt::format("Need to be inside scope() of {} for {}", core.name(), method));
  }
  require_alive(current, method);
  wrong_context(
      fmt::format("Mixing different Strategy objects: {} of one {} inside the scope of "
                  "another strategy ({})",
                  method, core.name(), current.name()));
}

CrossEntry::CrossEntry(StrategyCore& core, const char* method) {
  require_cross(core, method);
  threads_.emplace(core.threads_per_replica());
  if (!thread_context().modes.empty()) return;
  scope_ = enter_strategy({core.shared_from_this(), nullptr}, method);
}

CrossEntry::CrossEntry(StrategyCore& core, const char* method, Here here)
    : CrossEntry(core, method) {
  verb_.emplace(method, here);
}

CrossEntry::~CrossEntry() { end_scope(scope_); }

void require_cross(Strategy& strategy, const char* method) {
  require_cross(strategy.core(), method);
}

}  // namespace lockstep::detail

namespace lockstep {

using detail::thread_context;

Strategy& get_strategy() { return detail::current_core().strategy(); }

bool has_strategy() { return !detail::current_core().is_default(); }

ReplicaContext* get_replica_context() {
  const auto& modes = thread_context().modes;
  return modes.empty() ? &detail::default_replica() : modes.back().replica;
}

Strategy* get_cross_replica_context() {
  return in_cross_replica_context() ? &get_strategy() : nullptr;
}

bool in_cross_replica_context() { return get_replica_context() == nullptr; }

void set_strategy(Strategy* strategy) {
  detail::ThreadContext& context = thread_context();
  if (context.modes.size() > (context.set_by_hand ? 1U : 0U)) {
    throw InvalidUsage(
        "Must not be called inside a strategy scope: set_strategy() is for the time "
        "outside of every scope()",
        Code::failed_precondition);
  }
  context.modes.clear();
  context.set_by_hand = strategy != nullptr && !strategy->core().is_default();
  if (context.set_by_hand) context.modes.push_back({strategy->shared_core(), nullptr});
}

NameScope::NameScope(std::string_view name) {
  if (name.empty() || name.front() == '/') {
    throw InvalidUsage(fmt::format("'{}' is no name for a NameScope", name));
  }
  id_ = detail::enter_names(name);
}

NameScope::~NameScope() { detail::end_scope(id_); }

std::string scoped_name(std::string_view name) {
  return thread_context().names + std::string(name);
}

DeviceScope::DeviceScope(std::string_view device) : id_(detail::enter_device(device)) {}

DeviceScope::~DeviceScope() { detail::end_scope(id_); }

std::string current_device() { return thread_context().device; }

VariableCreatorScope::VariableCreatorScope(VariableCreator creator)
    : id_(detail::enter_creator(std::move(creator))) {}

VariableCreatorScope::~VariableCreatorScope() { detail::end_scope(id_); }

}  // namespace lockstep
