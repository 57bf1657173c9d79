// NodeReplica: the replica that recorded an autograd node. The node keeps it for its backward pass.
//
// The backward pass of a collective reduces the gradient over all replicas, so the replicas meet
// again. Only the replica that recorded the node can take its place in that meeting, and only
// inside a step function of the same strategy, on the thread of that function. Backward anywhere
// else would give the gradient of one replica alone, so it is refused.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>

#include "lockstep/here.h"
#include "lockstep/replica_context.h"

namespace lockstep::detail {

class NodeReplica : public torch::CustomClassHolder {
 public:
  using Node = torch::autograd::AutogradContext;

  /// `operation` is what the user called: "all_reduce". `here` is where.
  static void save(Node* node, const ReplicaContext& replica, const char* operation, Here here);
  /// What save() put there.
  static c10::intrusive_ptr<NodeReplica> of(Node* node);

  /// The context in which the gradient can be reduced now. Null if there is only one replica: then
  /// nothing is to be reduced. InvalidUsage if the calling thread does not run this replica.
  [[nodiscard]] ReplicaContext* context() const;
  /// Where the operation was called, for the meeting of the backward pass.
  [[nodiscard]] Here here() const noexcept { return here_; }

  NodeReplica(const ReplicaContext& replica, const char* operation, Here here);

 private:
  SharedDevices devices_;  // the core's own, and its identity: the core itself may be gone
  std::string strategy_;
  int id_;
  int replicas_;
  std::string operation_;
  Here here_;
};

}  // namespace lockstep::detail
