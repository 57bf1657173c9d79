// Failure: why a generation ended. Sticky: the first cause wins, later ones are ignored, nothing
// clears it. Any thread.
#pragma once

#include <atomic>

#include "base/mutex.h"
#include "base/status.h"

namespace lockstep::transport {

class Failure {
 public:
  /// True if this was the first cause.
  bool set(const Status& why) noexcept {
    const MutexLock lock(mutex_);
    if (raised_.load(std::memory_order_relaxed)) return false;
    cause_ = why;
    raised_.store(true, std::memory_order_release);
    return true;
  }
  [[nodiscard]] bool raised() const noexcept { return raised_.load(std::memory_order_acquire); }
  /// Ok while nothing has failed.
  [[nodiscard]] Status cause() const {
    const MutexLock lock(mutex_);
    return cause_;
  }

 private:
  std::atomic<bool> raised_ = false;
  mutable Mutex mutex_;
  Status cause_ GUARDED_BY(mutex_);
};

}  // namespace lockstep::transport
