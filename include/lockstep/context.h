// Where the calling thread stands: which strategy is current, and whether it is inside one replica
// or across all of them.
//
//   outside of everything    the default strategy, in its one replica's context: code written
//                            without a strategy runs as it is
//   inside scope()           cross-replica context of that strategy
//   inside a step function   replica context
//   inside a merge function  cross-replica context again
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "lockstep/device.h"
#include "lockstep/variable.h"

namespace lockstep {

class Strategy;
class ReplicaContext;

/// The current strategy; the default strategy outside of every scope.
Strategy& get_strategy();
/// Whether a strategy other than the default one is current.
bool has_strategy();
/// The context of the replica this thread runs, or nullptr in cross-replica context.
ReplicaContext* get_replica_context();
bool in_cross_replica_context();

/// Makes a strategy current on this thread until the next call; nullptr goes back to the default.
/// InvalidUsage inside a scope.
void set_strategy(Strategy* strategy);

/// Prefixes names: of variables, collectives, records. Inside a step function of replica i > 0 the
/// prefix has "replica_i/" in it.
class [[nodiscard]] NameScope {
 public:
  explicit NameScope(std::string_view name);
  ~NameScope();
  NameScope(const NameScope&) = delete;
  NameScope& operator=(const NameScope&) = delete;

 private:
  std::string before_;
  std::string variables_before_;
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
  std::string before_;
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

/// Stands between variable() and the strategy; the innermost is asked first. Each replica of run()
/// starts with a copy of the caller's creators.
class [[nodiscard]] VariableCreatorScope {
 public:
  explicit VariableCreatorScope(VariableCreator creator);
  ~VariableCreatorScope();
  VariableCreatorScope(const VariableCreatorScope&) = delete;
  VariableCreatorScope& operator=(const VariableCreatorScope&) = delete;

 private:
  std::size_t depth_;
};

}  // namespace lockstep
