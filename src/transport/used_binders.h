// UsedBinders: the greetings that a server has believed lately. A binder is never made twice, since
// there is a random number in every greeting: one that comes again was recorded (RFC 8446, 8.2).
//
// Only who knows the key can fill it. The oldest makes room for the newest.
// Thread rule: any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/mutex.h"
#include "transport/client_greeting.h"

namespace lockstep::transport {

class UsedBinders {
 public:
  static constexpr std::size_t kMost = 1024;

  /// False if it was used before.
  bool enter(const ClientGreeting::Binder& binder) {
    const MutexLock lock(mutex_);
    if (std::find(binders_.begin(), binders_.end(), binder) != binders_.end()) return false;
    if (binders_.size() < kMost) {
      binders_.push_back(binder);
    } else {
      binders_[oldest_] = binder;
      oldest_ = (oldest_ + 1) % kMost;
    }
    return true;
  }

 private:
  Mutex mutex_;
  std::vector<ClientGreeting::Binder> binders_ GUARDED_BY(mutex_);
  std::size_t oldest_ GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep::transport
