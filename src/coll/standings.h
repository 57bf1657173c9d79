// Standings: which operation of the group of all ranks each rank has begun last, as rank 0 hears it
// from their pulses and tells everybody when a rank keeps the others waiting.
//
// Any thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace lockstep::coll {

class Standings {
 public:
  void set(std::vector<std::uint64_t> begun) {
    const MutexLock lock(mutex_);
    begun_ = std::move(begun);
  }
  /// Ranks that had not begun the operation when it was known that `rank` had; empty where nobody
  /// has told yet.
  [[nodiscard]] std::vector<int> behind(int rank, std::uint64_t sequence) const {
    const MutexLock lock(mutex_);
    const auto own = static_cast<std::size_t>(rank);
    std::vector<int> ranks;
    if (own >= begun_.size() || begun_[own] != sequence) return ranks;  // of another time
    for (std::size_t other = 0; other < begun_.size(); ++other) {
      if (begun_[other] < sequence) ranks.push_back(static_cast<int>(other));
    }
    return ranks;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::uint64_t> begun_ GUARDED_BY(mutex_);  // by rank
};

}  // namespace lockstep::coll
