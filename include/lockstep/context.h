// Where the calling thread stands: which strategy is current, and whether it is inside one replica
// or across all of them.
//
//   outside of everything    the default strategy, in its one replica's context: code written
//                            without a strategy runs as it is
//   inside scope()           cross-replica context of that strategy
//   inside a step function   replica context
//   inside a merge function  cross-replica context again
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "lockstep/device.h"
#include "lockstep/variable.h"

namespace lockstep {

class Strategy;
class ReplicaContext;

namespace detail {
/// Of a scope that a thread has entered; unique in the process.
enum class ScopeId : std::uint64_t { none = 0 };
}  // namespace detail

/// The current strategy; the default strategy outside of every scope. InvalidUsage if it was
/// destroyed while it was current: a strategy must outlive its scopes.
Strategy& get_strategy();
/// Whether a strategy other than the default one is current.
bool has_strategy();
/// The context of the replica this thread runs, or nullptr in cross-replica context.
ReplicaContext* get_replica_context();
/// The current strategy in cross-replica context, or nullptr inside a replica: exactly one of the
/// two is null.
Strategy* get_cross_replica_context();
bool in_cross_replica_context();

/// Makes a strategy current on this thread until the next call; nullptr goes back to the default.
/// InvalidUsage inside a scope.
void set_strategy(Strategy* strategy);

// Scopes of all kinds, those of Strategy included, end in the reverse order of beginning, on the
// thread and in the function that entered them. One that is destroyed out of order takes back what
// it set and logs an error that names both.

/// Prefixes names: of variables, collectives, records. Inside a step function of replica i > 0 the
/// prefix has "replica_i/" in it.
class [[nodiscard]] NameScope {
 public:
  explicit NameScope(std::string_view name);
  ~NameScope();
  NameScope(const NameScope&) = delete;
  NameScope& operator=(const NameScope&) = delete;

 private:
  detail::ScopeId id_;
};
/// `name` with the prefix of the current scopes: "main/replica_1/foo/a".
std::string scoped_name(std::string_view name);

/// The device that fills the gaps of device strings, and the one mirrored values are read on.
class [[nodiscard]] DeviceScope {
 public:
  explicit DeviceScope(std::string_view device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  detail::ScopeId id_;
};
/// Inside a step function the replica's own device; "" if nothing was said.
std::string current_device();

/// What variable() is about to create; a creator may change it.
struct VariableRequest {
  std::string name;
  std::function<Tensor()> initial;
  VariableOptions options;
};
using NextCreator = std::function<Variable(VariableRequest)>;
using VariableCreator = std::function<Variable(const NextCreator& next, VariableRequest request)>;

/// Stands between variable() and the strategy; the innermost is asked first. Inside a step function
/// every replica asks its own creators first. Then replica 0 asks those of the caller of run() and
/// creates, and the other replicas get the same variable.
class [[nodiscard]] VariableCreatorScope {
 public:
  explicit VariableCreatorScope(VariableCreator creator);
  ~VariableCreatorScope();
  VariableCreatorScope(const VariableCreatorScope&) = delete;
  VariableCreatorScope& operator=(const VariableCreatorScope&) = delete;

 private:
  detail::ScopeId id_;
};

}  // namespace lockstep
