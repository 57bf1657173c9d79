// Departures: who has closed its session of which group of a generation. Control spreads them; the
// links of the groups ask.
//
// Any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "wire/frame.h"

namespace lockstep::coll {

class Departures {
 public:
  explicit Departures(int ranks) : heard_(static_cast<std::size_t>(ranks), 0) {}

  /// This rank leaves the group: to be told to the others.
  void leave(int rank, std::uint64_t group, std::uint64_t next) {
    const MutexLock lock(mutex_);
    untold_.push_back({.rank = rank,
                       .number = ++heard_[static_cast<std::size_t>(rank)],
                       .group = group,
                       .next = next});
  }
  /// What the others have not been told yet, in its order; the caller does.
  std::vector<wire::Departure> take_untold() {
    const MutexLock lock(mutex_);
    return std::exchange(untold_, {});
  }

  /// False: it is nothing new, or nonsense.
  bool note(const wire::Departure& departure) {
    const MutexLock lock(mutex_);
    if (departure.rank < 0 || static_cast<std::size_t>(departure.rank) >= heard_.size())
      return false;
    std::uint64_t& heard = heard_[static_cast<std::size_t>(departure.rank)];
    if (departure.number <= heard) return false;
    heard = departure.number;
    const Key key{departure.group, departure.rank};
    if (!first_missed_.emplace(key, departure.next).second) return true;
    order_.push_back(key);
    if (order_.size() > kRemembered) {
      first_missed_.erase(order_.front());
      order_.pop_front();
    }
    return true;
  }

  /// The first operation of the group that the rank takes no part in; empty: it has not left.
  [[nodiscard]] std::optional<std::uint64_t> first_missed(std::uint64_t group, int rank) const {
    const MutexLock lock(mutex_);
    const auto found = first_missed_.find({group, rank});
    if (found == first_missed_.end()) return std::nullopt;
    return found->second;
  }

 private:
  using Key = std::pair<std::uint64_t, int>;
  /// A program may make and close groups for ever; who still waits in one closed so
  /// long ago waits for its deadline.
  static constexpr std::size_t kRemembered = 16'384;

  mutable Mutex mutex_;
  std::vector<wire::Departure> untold_ GUARDED_BY(mutex_);
  std::vector<std::uint64_t> heard_ GUARDED_BY(mutex_);  // by rank: the latest one's number
  std::map<Key, std::uint64_t> first_missed_ GUARDED_BY(mutex_);
  std::deque<Key> order_ GUARDED_BY(mutex_);  // oldest first
};

}  // namespace lockstep::coll
