#include "lockstep/replica_context.h"

#include <ATen/ops/cat.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/strategy.h"
#include "strategy/core.h"
#include "tensor/torch_text.h"

namespace lockstep {

using detail::ReplicaState;

int ReplicaContext::replica_id_in_sync_group() const { return state_.id; }

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

/// All tensors of all replicas in one meeting; the same result on every replica's device.
std::vector<Tensor> meet_and_reduce(ReplicaContext& replica, ReduceOp op,
                                    const std::vector<Tensor>& own, Here here) {
  const auto merged = replica.merge_at(
      here,
      [op](Strategy& strategy, const std::vector<PerReplica<Tensor>>& values) {
        std::vector<ReducePair> pairs;
        for (const PerReplica<Tensor>& value : values) pairs.push_back({value, value});
        return strategy.batch_reduce_to(op, pairs);
      },
      own);
  return {merged.begin(), merged.end()};
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The place of the forward call, kept for the meeting of the backward pass.
class Place {
 public:
  static void save(AutogradContext* context, Here here) {
    context->saved_data["line"] = static_cast<std::int64_t>(here.line);
    context->saved_data["file"] = std::string(here.file);
  }
  explicit Place(AutogradContext* context)
      : file_(context->saved_data["file"].toStringRef()),
        line_(static_cast<int>(context->saved_data["line"].toInt())) {}
  [[nodiscard]] Here here() const { return {file_.c_str(), line_}; }

 private:
  std::string file_;
  int line_;
};

/// The replica whose backward pass this is.
ReplicaContext& replica_of_backward(const char* operation) {
  ReplicaContext* replica = get_replica_context();
  if (replica == nullptr) {
    throw InvalidUsage(fmt::format("backward through {} outside of the step function: the replicas "
                                   "must meet again to reduce the gradient; call backward inside "
                                   "the step",
                                   operation),
                       Code::failed_precondition);
  }
  return *replica;
}

/// The gradient of a sum over replicas is the sum of the replicas' gradients; of a mean, the mean.
struct AllReduce : torch::autograd::Function<AllReduce> {
  static variable_list forward(AutogradContext* context, at::TensorList tensors,
                               ReplicaContext* replica, ReduceOp::Value op, Here here) {
    context->saved_data["op"] = static_cast<std::int64_t>(op);
    Place::save(context, here);
    return meet_and_reduce(*replica, op, tensors.vec(), here);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    ReplicaContext& replica = replica_of_backward("all_reduce");
    const auto op = static_cast<ReduceOp::Value>(context->saved_data["op"].toInt());
    for (Tensor& gradient : gradients) gradient = gradient.contiguous();
    const Place place(context);
    variable_list result = meet_and_reduce(replica, op, gradients, place.here());
    result.insert(result.end(), 3, Tensor());  // for replica, op and here
    return result;
  }
};

Tensor meet_and_gather(ReplicaContext& replica, const Tensor& own, std::int64_t axis, Here here) {
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
    // Where this replica's rows begin.
    const auto rows = replica->merge_at(
        here,
        [](Strategy& strategy, const PerReplica<std::int64_t>& each) {
          const std::vector<std::int64_t> local = local_results(each);
          detail::Workers* workers = strategy.core().workers();
          return workers != nullptr ? workers->gather(local, "rows of all_gather") : local;
        },
        own.size(axis));
    std::int64_t begin = 0;
    for (int i = 0; i < replica->state().id; ++i) begin += rows[static_cast<std::size_t>(i)];
    context->saved_data["axis"] = axis;
    context->saved_data["begin"] = begin;
    context->saved_data["rows"] = own.size(axis);
    Place::save(context, here);
    return meet_and_gather(*replica, own, axis, here);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    ReplicaContext& replica = replica_of_backward("all_gather");
    const Place place(context);
    const Tensor summed =
        meet_and_reduce(replica, ReduceOp::sum, {gradients[0].contiguous()}, place.here()).front();
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
