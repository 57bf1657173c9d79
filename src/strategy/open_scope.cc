#include "strategy/open_scope.h"

#include <fmt/format.h>

#include <atomic>
#include <map>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "strategy/core.h"

namespace lockstep::detail {

namespace {

/// A thread that has entered scopes. Another thread that destroys one of them leaves word here.
class ScopeOwner {
 public:
  ScopeOwner() : number_(enrol(this)) { current_ = this; }
  ~ScopeOwner() {
    current_ = nullptr;
    const MutexLock lock(mutex_);
    owners().erase(number_);
  }
  ScopeOwner(const ScopeOwner&) = delete;
  ScopeOwner& operator=(const ScopeOwner&) = delete;

  /// An id of all threads, which says whose scope it is.
  static ScopeId next_id() {
    thread_local ScopeOwner owner;
    return static_cast<ScopeId>(owner.number_ << kCountBits | ++owner.count_);
  }
  static bool is_own(ScopeId id) noexcept {
    return current_ != nullptr && current_->number_ == number_of(id);
  }
  /// Tells a scope's thread that it has ended; nothing to do if that thread is over.
  static void tell(ScopeId id) {
    const MutexLock lock(mutex_);
    const auto owner = owners().find(number_of(id));
    if (owner == owners().end()) return;
    owner->second->ended_.push_back(id);
    owner->second->told_.store(true);
  }
  /// What this thread was told since the last time.
  static std::vector<ScopeId> told() {
    if (current_ == nullptr || !current_->told_.load(std::memory_order_relaxed)) return {};
    const MutexLock lock(mutex_);
    current_->told_.store(false);
    return std::exchange(current_->ended_, {});
  }

 private:
  static constexpr int kCountBits = 40;

  static std::uint64_t number_of(ScopeId id) noexcept {
    return static_cast<std::uint64_t>(id) >> kCountBits;
  }
  static std::map<std::uint64_t, ScopeOwner*>& owners() REQUIRES(mutex_) {
    static std::map<std::uint64_t, ScopeOwner*> all;
    return all;
  }
  static std::uint64_t enrol(ScopeOwner* owner) {
    static std::uint64_t last = 0;
    const MutexLock lock(mutex_);
    owners().emplace(++last, owner);
    return last;
  }

  inline static Mutex mutex_;
  inline static thread_local ScopeOwner* current_ = nullptr;
  const std::uint64_t number_;
  std::uint64_t count_ = 0;
  std::atomic<bool> told_ = false;
  std::vector<ScopeId> ended_;  // under mutex_
};

ScopeId open(ThreadContext& context, OpenScope scope) {
  context.scopes.push_back(std::move(scope));
  return context.scopes.back().id;
}

/// Where a record is among those of a context; nullopt if it is not there.
std::optional<std::size_t> position_of(const ThreadContext& context, ScopeId id) {
  for (std::size_t i = 0; i < context.scopes.size(); ++i) {
    if (context.scopes[i].id == id) return i;
  }
  return std::nullopt;
}

template <class T>
void erase_at(std::vector<T>& stack, std::size_t index) {
  if (index < stack.size()) stack.erase(stack.begin() + static_cast<std::ptrdiff_t>(index));
}

/// Takes back what the scope at `position` set. A scope inside it that set the same thing stays in
/// force, and gives back later what this one found.
void take_back(ThreadContext& context, std::size_t position) {
  OpenScope ended = std::move(context.scopes[position]);
  erase_at(context.scopes, position);
  OpenScope* inner = nullptr;  // the next one of the same kind
  for (std::size_t i = context.scopes.size(); i-- > position;) {
    OpenScope& later = context.scopes[i];
    if (later.kind != ended.kind) continue;
    inner = &later;
    if (later.depth > 0) --later.depth;
  }
  switch (ended.kind) {
    case ScopeKind::strategy:
      erase_at(context.modes, ended.depth);
      return;
    case ScopeKind::colocation:
      erase_at(context.colocations, ended.depth);
      return;
    case ScopeKind::creator:
      erase_at(context.creators, ended.depth);
      return;
    case ScopeKind::tower_local:
      (inner != nullptr ? inner->tower_local_before : context.tower_local) =
          ended.tower_local_before;
      return;
    case ScopeKind::device:
      (inner != nullptr ? inner->before : context.device) = std::move(ended.before);
      return;
    case ScopeKind::names:
      (inner != nullptr ? inner->before : context.names) = std::move(ended.before);
      (inner != nullptr ? inner->variable_names_before : context.variable_names) =
          std::move(ended.variable_names_before);
      return;
  }
}

std::string out_of_order(const ThreadContext& context, std::size_t position) {
  return fmt::format(
      "{} is not the innermost scope: {} was entered inside it and has not ended. Scopes end in "
      "the reverse order of beginning",
      context.scopes[position].what, context.scopes[position + 1].what);
}

std::string inside_a_function(const OpenScope& scope) {
  return fmt::format(
      "{} was entered outside of the function that runs now (a step, merge or update function): it "
      "ends where it was entered",
      scope.what);
}

constexpr const char* kOver =
    "a scope was entered in a function of run(), merge_call() or update() that is over: it has "
    "ended with it";
constexpr const char* kOnAnotherThread =
    "a scope was entered on another thread: it ends there. Do not move it to another thread";

}  // namespace

ScopeId enter_strategy(Mode mode, std::string what) {
  ThreadContext& context = thread_context();
  auto& modes = context.modes;
  modes.push_back(std::move(mode));
  return open(context,
              {ScopeOwner::next_id(), ScopeKind::strategy, std::move(what), modes.size() - 1});
}

ScopeId enter_colocation(DeviceList devices) {
  std::string what = "colocate_vars_with(";
  for (const Device& device : devices) {
    what += (&device == &devices.front() ? "" : ", ") + device.short_name();
  }
  ThreadContext& context = thread_context();
  auto& colocations = context.colocations;
  colocations.push_back(std::move(devices));
  return open(context,
              {ScopeOwner::next_id(), ScopeKind::colocation, what + ")", colocations.size() - 1});
}

ScopeId enter_tower_local(Aggregation aggregation) {
  ThreadContext& context = thread_context();
  auto& current = context.tower_local;
  OpenScope scope{ScopeOwner::next_id(), ScopeKind::tower_local,
                  fmt::format("tower_local_var_scope({})", to_string(aggregation))};
  scope.tower_local_before = current;
  current = aggregation;
  return open(context, std::move(scope));
}

ScopeId enter_names(std::string_view name) {
  ThreadContext& context = thread_context();
  OpenScope scope{ScopeOwner::next_id(), ScopeKind::names, fmt::format("NameScope(\"{}\")", name)};
  scope.before = context.names;
  scope.variable_names_before = context.variable_names;
  for (std::string* names : {&context.names, &context.variable_names}) {
    *names += name;
    if (names->back() != '/') *names += '/';
  }
  return open(context, std::move(scope));
}

ScopeId enter_device(std::string_view device) {
  ThreadContext& context = thread_context();
  std::string& current = context.device;
  std::string inside = Device::canonicalize(device, current).str();
  OpenScope scope{ScopeOwner::next_id(), ScopeKind::device,
                  fmt::format("DeviceScope(\"{}\")", device)};
  scope.before = std::exchange(current, std::move(inside));
  return open(context, std::move(scope));
}

ScopeId enter_creator(VariableCreator creator) {
  ThreadContext& context = thread_context();
  auto& creators = context.creators;
  creators.push_back(std::move(creator));
  return open(context, {ScopeOwner::next_id(), ScopeKind::creator, "a VariableCreatorScope",
                        creators.size() - 1});
}

void end_what_others_destroyed(ThreadContext& context) {
  for (const ScopeId id : ScopeOwner::told()) {
    if (const auto position = position_of(context, id)) {
      take_back(context, *position);
      continue;
    }
    for (ContextSwap* swap = ContextSwap::innermost(); swap != nullptr; swap = swap->outer()) {
      if (const auto position = position_of(swap->before(), id)) {
        take_back(swap->before(), *position);
        break;
      }
    }
  }
}

void end_scope(ScopeId id) noexcept {
  if (id == ScopeId::none) return;
  ThreadContext& context = thread_context();
  if (const auto position = position_of(context, id)) {
    if (*position + 1 < context.scopes.size()) log_error("{}", out_of_order(context, *position));
    take_back(context, *position);
    return;
  }
  for (ContextSwap* swap = ContextSwap::innermost(); swap != nullptr; swap = swap->outer()) {
    if (const auto position = position_of(swap->before(), id)) {
      log_error("{}", inside_a_function(swap->before().scopes[*position]));
      take_back(swap->before(), *position);
      return;
    }
  }
  if (ScopeOwner::is_own(id)) {
    log_error("{}", kOver);
    return;
  }
  log_error("{}", kOnAnotherThread);
  ScopeOwner::tell(id);
}

void exit_scope(ScopeId id) {
  if (id == ScopeId::none) return;
  ThreadContext& context = thread_context();
  if (!context.scopes.empty() && context.scopes.back().id == id) {
    take_back(context, context.scopes.size() - 1);
    return;
  }
  std::string why = ScopeOwner::is_own(id) ? kOver : kOnAnotherThread;
  if (const auto position = position_of(context, id)) why = out_of_order(context, *position);
  for (ContextSwap* swap = ContextSwap::innermost(); swap != nullptr; swap = swap->outer()) {
    if (const auto position = position_of(swap->before(), id)) {
      why = inside_a_function(swap->before().scopes[*position]);
    }
  }
  throw InvalidUsage(why, Code::failed_precondition);
}

}  // namespace lockstep::detail
