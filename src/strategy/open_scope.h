// Scopes of all kinds that a thread has entered: scope(), colocate_vars_with(),
// tower_local_var_scope(), NameScope, DeviceScope and VariableCreatorScope. Each leaves a record,
// so that it can end only where it began and takes back exactly what it set.
//
//   const ScopeId id = enter_device("CPU:1");
//   ...
//   exit_scope(id);     // Scope::exit(): out of order it throws and changes nothing
//   end_scope(id);      // a destructor: out of order it logs both scopes, and ends its own
//
// Threads: a scope belongs to the thread that entered it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "lockstep/context.h"

namespace lockstep::detail {

struct Mode;
struct ThreadContext;

enum class ScopeKind { strategy, colocation, tower_local, names, device, creator };

/// A scope that has not ended, and what the thread's context had before it.
struct OpenScope {
  ScopeId id;
  ScopeKind kind;
  std::string what;                        // for messages: NameScope("layer")
  std::size_t depth = 0;                   // strategy, colocation, creator: place in its stack
  std::string before = {};                 // device, names
  std::string variable_names_before = {};  // names
  std::optional<Aggregation> tower_local_before = {};
};

/// Each changes the thread's context and leaves a record.
ScopeId enter_strategy(Mode mode, std::string what);
ScopeId enter_colocation(DeviceList devices);
ScopeId enter_tower_local(Aggregation aggregation);
ScopeId enter_names(std::string_view name);
ScopeId enter_device(std::string_view device);
ScopeId enter_creator(VariableCreator creator);

/// Ends a scope wherever it is among those of this thread. The scopes inside it stay, and the
/// thread is as before all of them once they have ended. Logs an error out of order, and for a
/// scope of another thread: that thread ends it before it next looks at its context.
void end_scope(ScopeId id) noexcept;
/// Ends the scopes of this thread that other threads have destroyed since the last call.
void end_what_others_destroyed(ThreadContext& context);
/// InvalidUsage naming both scopes unless it is the innermost one.
void exit_scope(ScopeId id);

}  // namespace lockstep::detail
