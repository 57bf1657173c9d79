// OptimizerList: the living optimizers of a strategy, and the backward passes of its replicas. What
// one optimizer does to gradients concerns the others (train/optimizer_sharing.h).
//
// Threads: pass_of() is called on the replica's own thread, inside of its backward pass; the rest
// on any.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"

namespace lockstep::detail {

class OptimizerSharing;

class OptimizerList : public std::enable_shared_from_this<OptimizerList> {
 public:
  explicit OptimizerList(int replicas) : passes_(static_cast<std::size_t>(replicas)) {}

  /// Gives its number: how many were made before.
  int add(const std::shared_ptr<OptimizerSharing>& optimizer);
  /// All but this one.
  [[nodiscard]] std::vector<std::shared_ptr<OptimizerSharing>> others(const OptimizerSharing& than);

  /// The number of the backward pass that this replica is in; counted from 1.
  std::int64_t pass_of(int replica);
  /// After an exception a pass does not say that it has ended.
  void end_passes() noexcept;

 private:
  struct Pass {
    std::int64_t number = 0;
    bool running = false;
  };

  std::vector<Pass> passes_;  // by local replica
  Mutex mutex_;
  int made_ GUARDED_BY(mutex_) = 0;
  std::vector<std::weak_ptr<OptimizerSharing>> optimizers_ GUARDED_BY(mutex_);
};

}  // namespace lockstep::detail
