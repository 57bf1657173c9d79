// BucketGradients: makes the buckets of an optimizer, moves the gradients of the local replicas
// into them, and binds `.grad` to the sums.
//
// A bucket that several gradients share is a flat tensor for each local replica, in the group's
// memory, which workers of the same host read in place. `.grad` becomes a view of it, so that what
// the program writes there before the step counts. If buckets are sent during backward, `.grad`
// stays what backward has left: the bucket's memory may hold a part of the sum at any moment.
//
// A large gradient that has a bucket to itself (BucketLayout::alone) stays where libtorch has
// computed it, if that is the group's memory (tensor/placed_memory.h) and nothing else uses it. If
// not, it is copied into the group's memory.
//
//   1. arrived()     during backward, for each gradient
//   2. fill_up()     after backward: what is not in its bucket yet
//   3. bind()        when the buckets hold the sums
//   4. forget_all()  the step is over or was discarded
//
// Threads: arrived(), forget() and bind() for different replicas at the same time. All other
// functions by one thread while the replicas wait.
#pragma once

#include <vector>

#include "strategy/core.h"
#include "train/bucket.h"
#include "train/bucket_plan.h"
#include "train/parameters.h"

namespace lockstep::train {

class BucketGradients {
 public:
  /// What becomes of `.grad` when its gradient is moved in.
  enum class Grad { is_view, stays };

  /// The first two outlive this object.
  BucketGradients(detail::StrategyCore& core, const Parameters& parameters,
                  const std::vector<BucketLayout>& layouts, Grad grad);
  ~BucketGradients();
  BucketGradients(const BucketGradients&) = delete;
  BucketGradients& operator=(const BucketGradients&) = delete;

  [[nodiscard]] const Buckets& buckets() const noexcept { return buckets_; }

  /// Moves the gradient into its bucket, if several share it. True if the bucket is full now.
  bool arrived(int replica, int parameter);
  /// This gradient is not in its bucket any more; fill_up() moves the one that is there then.
  void forget(int replica, int parameter);
  void forget_all();

  /// Moves in what is not in its bucket yet: large gradients, zeros for unused parameters, and, in
  /// the first step, all. With Grad::is_view also a tensor that was put into `.grad` since.
  void fill_up();
  /// Moves in gradients that were not moved when they arrived: those of accumulated passes, and
  /// those that arrived while another optimizer had one of the parameters, too. Does not count them
  /// as filled.
  void move_arrived();

  /// `.grad` of each parameter that has a bucket becomes the sum, or undefined if it is not `used`.
  void bind(int replica, const std::vector<bool>& used);

 private:
  struct Place {
    Bucket* bucket = nullptr;   // null: sparse, or not trainable
    std::vector<Tensor> views;  // by local replica; of this step if the bucket is `alone`
  };

  [[nodiscard]] tensor::PlacedMemory& memory() const noexcept { return *core_.placed_memory(); }
  [[nodiscard]] Place& place(int parameter) { return places_[static_cast<std::size_t>(parameter)]; }
  [[nodiscard]] char& is_moved_in(int replica, int parameter) {
    return moved_in_[static_cast<std::size_t>(replica)][static_cast<std::size_t>(parameter)];
  }
  void make_bucket(const BucketLayout& layout);
  void make_flat(Bucket& bucket, int replica);
  void move_in(int replica, int parameter);
  [[nodiscard]] bool can_stay(const Tensor& gradient, const Tensor& parameter) const;
  void take_replaced(int replica, int parameter);

  detail::StrategyCore& core_;
  const Parameters& parameters_;
  Grad grad_;
  Buckets buckets_;
  std::vector<Place> places_;                // by parameter
  std::vector<std::vector<char>> moved_in_;  // [local replica][parameter]: 1 or 0
};

}  // namespace lockstep::train
