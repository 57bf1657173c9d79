#include "lockstep/replica_context.h"

#include <ATen/ops/cat.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/strategy.h"
#include "strategy/core.h"
#include "strategy/node_replica.h"
#include "tensor/torch_text.h"

namespace lockstep {

using detail::NodeReplica;
using detail::ReplicaState;

int ReplicaContext::replica_id_in_sync_group() const { return state_.id; }

int ReplicaContext::local_replica_id() const noexcept { return state_.index; }

int ReplicaContext::num_replicas_in_sync() const noexcept {
  return state_.core->replicas_in_sync();
}

Strategy& ReplicaContext::strategy() const noexcept { return state_.core->strategy(); }

const Device& ReplicaContext::device() const noexcept { return state_.device; }

std::int64_t ReplicaContext::global_batch_size() const {
  if (!state_.global_batch_size) {
    throw InvalidUsage(
        "global_batch_size is not known in this run: give it with "
        "run(RunOptions{.global_batch_size = n}, ...)",
        Code::failed_precondition);
  }
  return *state_.global_batch_size;
}

namespace {

/// Sparse tensors: whether their values are.
bool is_same_memory(const Tensor& a, const Tensor& b) {
  if (a.is_sparse() != b.is_sparse()) return false;
  return a.is_sparse() ? a._values().is_alias_of(b._values()) : a.is_alias_of(b);
}

/// All tensors of all replicas in one meeting; the same result on every replica's device.
std::vector<Tensor> meet_and_reduce(ReplicaContext& replica, ReduceOp op,
                                    const std::vector<Tensor>& own, Here here) {
  const detail::Verb verb("all_reduce", here);
  const auto merged = replica.merge_at(
      here,
      [op](Strategy& strategy, const std::vector<PerReplica<Tensor>>& values) {
        std::vector<ReducePair> pairs;
        for (const PerReplica<Tensor>& value : values) pairs.push_back({value, value});
        return strategy.batch_reduce_to(op, pairs);
      },
      own);
  std::vector<Tensor> results(merged.begin(), merged.end());
  // The sum of one replica is its input. Memory of the caller's is not handed out twice.
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (is_same_memory(results[i], own[i])) results[i] = results[i].clone();
  }
  return results;
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The gradients of all replicas, reduced. Differentiable in turn: where the graph of the backward
/// pass is recorded, so is this.
variable_list reduce_gradients(const NodeReplica& node, ReduceOp op, variable_list gradients) {
  ReplicaContext* const replica = node.context();
  if (replica == nullptr) return gradients;
  for (Tensor& gradient : gradients) gradient = gradient.contiguous();
  return detail::all_reduce_tensors(*replica, op, gradients, node.here());
}

/// The gradient of a sum over replicas is the sum of the replicas' gradients; of a mean, the mean.
struct AllReduce : torch::autograd::Function<AllReduce> {
  static variable_list forward(AutogradContext* context, at::TensorList tensors,
                               ReplicaContext* replica, ReduceOp::Value op, Here here) {
    context->saved_data["op"] = static_cast<std::int64_t>(op);
    NodeReplica::save(context, *replica, "all_reduce", here);
    return meet_and_reduce(*replica, op, tensors.vec(), here);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto node = NodeReplica::of(context);
    const auto op = static_cast<ReduceOp::Value>(context->saved_data["op"].toInt());
    variable_list result = reduce_gradients(*node, op, gradients);
    result.insert(result.end(), 3, Tensor());  // for replica, op and here
    return result;
  }
};

Tensor meet_and_gather(ReplicaContext& replica, const Tensor& own, std::int64_t axis, Here here) {
  const detail::Verb verb("all_gather", here);
  return replica.merge_at(
      here,
      [axis](Strategy& strategy, const PerReplica<Tensor>& value) {
        return strategy.broadcast(strategy.gather(value, axis), Destinations(value));
      },
      own);
}

/// The gradient of a gather is this replica's rows of the replicas' summed gradients.
struct AllGather : torch::autograd::Function<AllGather> {
  static Tensor forward(AutogradContext* context, const Tensor& own, ReplicaContext* replica,
                        std::int64_t axis, Here here) {
    const detail::Verb verb("all_gather", here);
    // Where this replica's rows begin.
    const auto rows = replica->merge_at(
        here,
        [](Strategy& strategy, const PerReplica<std::int64_t>& each) {
          const std::vector<std::int64_t> local = local_results(each);
          detail::Workers* workers = strategy.core().workers();
          return workers != nullptr ? workers->gather(local, "rows") : local;
        },
        own.size(axis));
    std::int64_t begin = 0;
    for (int i = 0; i < replica->state().id; ++i) begin += rows[static_cast<std::size_t>(i)];
    context->saved_data["axis"] = axis;
    context->saved_data["begin"] = begin;
    context->saved_data["rows"] = own.size(axis);
    NodeReplica::save(context, *replica, "all_gather", here);
    return meet_and_gather(*replica, own, axis, here);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto node = NodeReplica::of(context);
    const Tensor summed = reduce_gradients(*node, ReduceOp::sum, {gradients[0]}).front();
    const Tensor own =
        summed.narrow(context->saved_data["axis"].toInt(), context->saved_data["begin"].toInt(),
                      context->saved_data["rows"].toInt());
    return {own, Tensor(), Tensor(), Tensor()};
  }
};

bool wants_gradient(const std::vector<Tensor>& tensors) {
  if (!at::GradMode::is_enabled()) return false;
  for (const Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.requires_grad()) return true;
  }
  return false;
}

}  // namespace

namespace detail {

std::vector<Tensor> all_reduce_tensors(ReplicaContext& replica, ReduceOp op,
                                       const std::vector<Tensor>& tensors, Here here) {
  require_replica(replica, "all_reduce");
  // Whether one replica's tensors record gradients must not decide whether all meet twice: the
  // meeting itself is the same on both roads.
  if (!wants_gradient(tensors)) return meet_and_reduce(replica, op, tensors, here);
  if (op.picks()) {
    throw Unsupported(
        fmt::format("all_reduce {} of a tensor that requires a gradient, which it "
                    "does not have here; say all_reduce(op, value.detach())",
                    op.name()));
  }
  return AllReduce::apply(at::TensorList(tensors), &replica, static_cast<ReduceOp::Value>(op),
                          here);
}

}  // namespace detail

Agreed<Tensor> ReplicaContext::all_gather(const Tensor& tensor, std::int64_t axis, Here here) {
  detail::require_replica(*this, "all_gather");
  if (tensor.is_sparse()) throw Unsupported("all_gather of a sparse tensor");
  if (tensor.dim() == 0) throw InvalidUsage("all_gather of a scalar: it has no axis to join along");
  const std::int64_t wrapped = axis < 0 ? axis + tensor.dim() : axis;
  if (wrapped < 0 || wrapped >= tensor.dim()) {
    throw InvalidUsage(fmt::format("all_gather along axis {} of a tensor of shape {}", axis,
                                   tensor::shape_text(tensor)));
  }
  return Agreed<Tensor>(AllGather::apply(tensor, this, wrapped, here));
}

}  // namespace lockstep
