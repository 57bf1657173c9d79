#include "strategy/node_replica.h"

#include <fmt/format.h>

#include "lockstep/context.h"
#include "strategy/core.h"

namespace lockstep::detail {

namespace {

constexpr const char* kKey = "replica";

/// Where a thread stands that does not run the replica.
std::string place_of(const ReplicaContext* current) {
  if (current == nullptr) return "in cross-replica context";
  const ReplicaState& state = current->state();
  if (state.core->is_default()) return "outside of its step function, or on another thread";
  return fmt::format("in a step function of replica {} of {}", state.id, state.core->name());
}

std::string at_place(Here here) {
  return here.file[0] == '\0' ? "" : fmt::format(" at {}:{}", here.file, here.line);
}

}  // namespace

NodeReplica::NodeReplica(const ReplicaContext& replica, const char* operation, Here here)
    : devices_(replica.state().core->devices()),
      strategy_(replica.state().core->name()),
      id_(replica.state().id),
      replicas_(replica.num_replicas_in_sync()),
      operation_(operation),
      here_(here) {}

void NodeReplica::save(Node* node, const ReplicaContext& replica, const char* operation,
                       Here here) {
  node->saved_data[kKey] =
      at::IValue::make_capsule(c10::make_intrusive<NodeReplica>(replica, operation, here));
}

c10::intrusive_ptr<NodeReplica> NodeReplica::of(Node* node) {
  return c10::static_intrusive_pointer_cast<NodeReplica>(node->saved_data.at(kKey).toCapsule());
}

ReplicaContext* NodeReplica::context() const {
  if (replicas_ == 1) return nullptr;
  ReplicaContext* const current = get_replica_context();
  if (current != nullptr && current->state().core->devices() == devices_ &&
      current->state().id == id_) {
    return current;
  }
  throw InvalidUsage(
      fmt::format("backward through {}{}, recorded by replica {} of {}, was called {}: the "
                  "gradient is reduced over all {} replicas, which can only meet in their step "
                  "functions. Call backward inside the step function, on its own thread, in every "
                  "replica. If the result needs no gradient, detach() it",
                  operation_, at_place(here_), id_, strategy_, place_of(current), replicas_),
      Code::failed_precondition);
}

}  // namespace lockstep::detail
