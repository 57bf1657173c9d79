// What a thread knows of where it stands: the stack of strategies entered, the copy being updated,
// and what scopes have set. A plain value: a call that changes it swaps a whole one in and the old
// one back, so that every path out restores everything.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/context.h"
#include "lockstep/detail/runtime.h"
#include "lockstep/error.h"
#include "strategy/open_scope.h"
#include "strategy/verb.h"
#include "tensor/operator_threads.h"

namespace lockstep::detail {

[[noreturn]] inline void wrong_context(const std::string& message) {
  throw InvalidUsage(message, Code::failed_precondition);
}

/// One entered strategy: in cross-replica context, or inside one of its replicas. The core is
/// shared: a Strategy that is destroyed while it is current is found to be gone.
struct Mode {
  std::shared_ptr<StrategyCore> core;
  ReplicaContext* replica;  // nullptr: cross-replica
};

struct ThreadContext {
  std::vector<Mode> modes;                // empty: the default strategy's one replica
  std::optional<UpdateTarget> updating;   // inside update(): which copy
  std::string device;                     // "" if nothing was said
  std::string names;                      // prefix, with "replica_i/" inside replicas
  std::string variable_names;             // prefix without it: variables have one name everywhere
  std::vector<VariableCreator> creators;  // innermost last
  std::size_t callers_creators = 0;       // inside a step function: the first ones are run()'s
  std::vector<DeviceList> colocations;    // innermost last
  std::optional<Aggregation> tower_local;
  bool set_by_hand = false;       // modes.front() is set_strategy's
  std::vector<OpenScope> scopes;  // entered in this context, innermost last
};

ThreadContext& thread_context();

/// Puts a context in place of the thread's for as long as it lives. It begins without open scopes:
/// those of the context it was copied from can only end there.
class ContextSwap {
 public:
  explicit ContextSwap(ThreadContext context);
  ~ContextSwap();
  ContextSwap(const ContextSwap&) = delete;
  ContextSwap& operator=(const ContextSwap&) = delete;

  /// The innermost one of this thread, and the one around it; nullptr if there is none.
  static ContextSwap* innermost() noexcept;
  [[nodiscard]] ContextSwap* outer() const noexcept { return outer_; }
  /// The context that is back afterwards.
  [[nodiscard]] ThreadContext& before() noexcept { return other_; }

 private:
  ThreadContext other_;
  ContextSwap* outer_;
};

/// The strategy the thread stands in.
StrategyCore& current_core();

/// Guards; each throws InvalidUsage (FAILED_PRECONDITION) that names the right call.
void require_cross(const StrategyCore& core, const char* method);
void require_replica(const ReplicaContext& replica, const char* method);
void require_scope(const StrategyCore& core, const char* method);

/// Stands in cross-replica context of the strategy for the length of a verb: checks, and enters it
/// if the thread is in none. Operations meanwhile take the threads of a replica.
class CrossEntry {
 public:
  CrossEntry(StrategyCore& core, const char* method);
  /// Of a verb that workers may meet in.
  CrossEntry(StrategyCore& core, const char* method, Here here);
  ~CrossEntry();
  CrossEntry(const CrossEntry&) = delete;
  CrossEntry& operator=(const CrossEntry&) = delete;

 private:
  ScopeId scope_ = ScopeId::none;
  std::optional<Verb> verb_;
  std::optional<tensor::OperatorThreads> threads_;
};

}  // namespace lockstep::detail
