#include "strategy/thread_context.h"

#include <fmt/format.h>

#include "base/log.h"
#include "strategy/core.h"

namespace lockstep::detail {

namespace {
[[noreturn]] void wrong_context(const std::string& message) {
  throw InvalidUsage(message, Code::failed_precondition);
}
}  // namespace

ThreadContext& thread_context() {
  thread_local ThreadContext context;
  return context;
}

StrategyCore& current_core() {
  const auto& modes = thread_context().modes;
  return modes.empty() ? default_core() : *modes.back().core;
}

void require_cross(const StrategyCore& core, const char* method) {
  const auto& modes = thread_context().modes;
  if (modes.empty()) return;  // outside of everything: the verb enters the strategy itself
  const Mode& top = modes.back();
  if (top.core == &core) {
    if (top.replica == nullptr) return;
    wrong_context(fmt::format(
        "{} was called inside a step function of {}: Method requires being in cross-replica "
        "context, use get_replica_context().merge_call()",
        method, core.name()));
  }
  if (top.core->is_default()) {
    wrong_context(fmt::format("Need to be inside scope() of {} for {}", core.name(), method));
  }
  wrong_context(fmt::format(
      "Mixing different Strategy objects: {} was called on one {} inside the scope of another "
      "strategy ({}); {} is not {}",
      method, core.name(), top.core->name(), static_cast<const void*>(top.core),
      static_cast<const void*>(&core)));
}

void require_replica(const ReplicaContext& replica, const char* method) {
  const ReplicaState& state = replica.state();
  if (state.run == nullptr && thread_context().modes.empty()) return;
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
  wrong_context(
      fmt::format("Mixing different Strategy objects: {} of one {} inside the scope of "
                  "another strategy ({})",
                  method, core.name(), current.name()));
}

CrossEntry::CrossEntry(StrategyCore& core, const char* method)
    : entered_(thread_context().modes.empty()) {
  require_cross(core, method);
  if (entered_) thread_context().modes.push_back({&core, nullptr});
}

CrossEntry::~CrossEntry() {
  if (entered_) thread_context().modes.pop_back();
}

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
  if (context.set_by_hand) context.modes.push_back({&strategy->core(), nullptr});
}

NameScope::NameScope(std::string_view name)
    : before_(thread_context().names), variables_before_(thread_context().variable_names) {
  if (name.empty() || name.front() == '/') {
    throw InvalidUsage(fmt::format("'{}' is no name for a NameScope", name));
  }
  for (std::string* names : {&thread_context().names, &thread_context().variable_names}) {
    *names += name;
    if (names->back() != '/') *names += '/';
  }
}

NameScope::~NameScope() {
  thread_context().names = std::move(before_);
  thread_context().variable_names = std::move(variables_before_);
}

std::string scoped_name(std::string_view name) {
  return thread_context().names + std::string(name);
}

DeviceScope::DeviceScope(std::string_view device) : before_(thread_context().device) {
  thread_context().device = Device::canonicalize(device, before_).str();
}

DeviceScope::~DeviceScope() { thread_context().device = std::move(before_); }

std::string current_device() { return thread_context().device; }

VariableCreatorScope::VariableCreatorScope(VariableCreator creator)
    : depth_(thread_context().creators.size()) {
  thread_context().creators.push_back(std::move(creator));
}

VariableCreatorScope::~VariableCreatorScope() {
  auto& creators = thread_context().creators;
  if (creators.size() != depth_ + 1) {
    log_error(
        "a VariableCreatorScope ended out of order: scopes end in the reverse order of "
        "beginning, on the thread that began them");
  }
  if (creators.size() > depth_) creators.resize(depth_);
}

}  // namespace lockstep
