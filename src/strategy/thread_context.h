// What a thread knows of where it stands: the stack of strategies entered, the copy being updated,
// and what scopes have set. A plain value: whoever changes it for the length of a call swaps a
// whole one in and the old one back, so that every path out restores everything.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/context.h"
#include "lockstep/detail/runtime.h"

namespace lockstep::detail {

/// One entered strategy: in cross-replica context, or inside one of its replicas.
struct Mode {
  StrategyCore* core;
  ReplicaContext* replica;  // nullptr: cross-replica
};

struct ThreadContext {
  std::vector<Mode> modes;                // empty: the default strategy's one replica
  std::optional<UpdateTarget> updating;   // inside update(): which copy
  std::string device;                     // "" if nothing was said
  std::string names;                      // prefix, with "replica_i/" inside replicas
  std::string variable_names;             // prefix without it: variables have one name everywhere
  std::vector<VariableCreator> creators;  // innermost last
  std::vector<DeviceList> colocations;    // innermost last
  std::optional<Aggregation> tower_local;
  bool set_by_hand = false;  // modes.front() is set_strategy's
};

ThreadContext& thread_context();

/// Puts a context in place of the thread's for as long as it lives.
class ContextSwap {
 public:
  explicit ContextSwap(ThreadContext context) : other_(std::move(context)) {
    std::swap(thread_context(), other_);
  }
  ~ContextSwap() { std::swap(thread_context(), other_); }
  ContextSwap(const ContextSwap&) = delete;
  ContextSwap& operator=(const ContextSwap&) = delete;

 private:
  ThreadContext other_;
};

/// The strategy the thread stands in.
StrategyCore& current_core();

/// Guards; each throws InvalidUsage (FAILED_PRECONDITION) that names the right call.
void require_cross(const StrategyCore& core, const char* method);
void require_replica(const ReplicaContext& replica, const char* method);
void require_scope(const StrategyCore& core, const char* method);

/// Stands in cross-replica context of the strategy for the length of a verb: checks, and enters it
/// if the thread is in none.
class CrossEntry {
 public:
  CrossEntry(StrategyCore& core, const char* method);
  ~CrossEntry();
  CrossEntry(const CrossEntry&) = delete;
  CrossEntry& operator=(const CrossEntry&) = delete;

 private:
  bool entered_;
};

}  // namespace lockstep::detail
