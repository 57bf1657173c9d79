// GradientExchange: how the gradients that backward passes leave on each replica become their sum.
//
// Threads: arrived() is called on the replica's own thread, during its backward pass, for different
// replicas at the same time. finish() and discard() are called by one thread while the replicas
// wait in a meeting.
#pragma once

// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <ATen/ops/empty.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/optimizer.h"
#include "strategy/core.h"
#include "train/parameters.h"

namespace lockstep::train {

/// What is known when all replicas have ended their backward passes.
struct Gathered {
  /// By parameter: whether a local replica has a gradient.
  std::vector<bool> used;
  /// Parameters in the order in which their gradients came, on the first local replica.
  std::vector<int> order;
  /// By local replica: whether something other than the optimizer has changed its parameters.
  std::vector<bool> changed;
  Here here = Here::now();  // where the user wrote apply()
  std::string scale = {};   // what all workers must scale the step by (step_scale.h)
};

class GradientExchange {
 public:
  virtual ~GradientExchange() = default;

  /// The gradient of this parameter on this replica will not change any more in this step.
  virtual void arrived(int replica, int parameter) = 0;

  /// Before the first arrival of a pass, on the replica's own thread, or before finish() if nothing
  /// was sent: whether something other than the optimizer has changed its parameters.
  virtual void report_change(int /*replica*/, bool /*changed*/) {}

  /// On the replica's own thread, or while the replicas wait: this gradient is no more.
  virtual void forget(int /*replica*/, int /*parameter*/) {}

  /// While the replicas wait: the pass was another optimizer's, and its gradients may be used all
  /// the same (finish() without another arrival) or not (forget(), and arrivals of another pass).
  virtual void settle() {}

  /// Adds up what has arrived. True if a replica of any worker has said that something other than
  /// the optimizer has changed its parameters.
  virtual bool finish(const Gathered& gathered) = 0;

  /// After finish(), on the replica's own thread, so that memory is freed where it was taken:
  /// `.grad` of each parameter becomes the sum over all replicas (which may share its memory),
  /// undefined if no replica of any worker has one.
  virtual void bind(int replica) = 0;

  /// After the step, by one thread: the sums are nobody's any more.
  virtual void release() {}

  /// Forgets what has arrived. Where gradients are sent during backward, all workers together.
  virtual void discard() = 0;

  /// Whether gradients are sent while backward goes on.
  [[nodiscard]] virtual bool sends_during_backward() const { return false; }

  [[nodiscard]] virtual std::string explain() const = 0;
};

/// Whether a sum may be written over this gradient, which a parameter has: nobody else has it, or
/// shares its memory. (libtorch gives two parameters views of one gradient where it can.) To be
/// asked of the parameter's own: a copy of the handle is somebody else.
inline bool may_become_sum(const Tensor& gradient) {
  return gradient.use_count() == 1 && gradient.storage().use_count() == 1 &&
         gradient.is_non_overlapping_and_dense() && !gradient.requires_grad() &&
         !gradient.is_conj() && !gradient.is_neg();
}

/// A sparse gradient in which no row was used.
inline Tensor no_rows_of(const Tensor& parameter, std::int64_t sparse_dim) {
  const Tensor none = at::empty({0}, parameter.options().layout(c10::kSparse));
  return none.sparse_resize_and_clear_(parameter.sizes(), sparse_dim, parameter.dim() - sparse_dim);
}

/// Replicas of one process: reduced where they lie, without a copy; or by the ops that the user has
/// given to the strategy.
std::unique_ptr<GradientExchange> local_exchange(detail::StrategyCore& core,
                                                 const Parameters& parameters);

/// Replicas of several workers: through buckets in the group's memory.
std::unique_ptr<GradientExchange> bucket_exchange(detail::StrategyCore& core,
                                                  const Parameters& parameters,
                                                  const GradientOptions& options);

}  // namespace lockstep::train
