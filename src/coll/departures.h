// Departures: which rank has closed its session of which group of a generation, or of all
// (wire::kAllGroups). Control spreads them; the links of the groups ask.
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
    const wire::Departure departure{.rank = rank,
                                    .more = 0,
                                    .number = heard_[static_cast<std::size_t>(rank)] + 1,
                                    .group = group,
                                    .next = next};
    remember(departure);
    untold_.push_back(departure);
  }
  /// What this rank has left since, in its order; the caller tells the others.
  std::vector<wire::Departure> take_untold() {
    const MutexLock lock(mutex_);
    return std::exchange(untold_, {});
  }
  /// All that is remembered, of every rank in its order; for a rank that may not have heard of it.
  std::vector<wire::Departure> all() const {
    const MutexLock lock(mutex_);
    std::vector<wire::Departure> all(remembered_.begin(), remembered_.end());
    all.insert(all.end(), of_all_groups_.begin(), of_all_groups_.end());
    return all;
  }

  /// Of one rank. False: it is nothing new, or nonsense.
  bool note(const wire::Departure& departure) {
    const MutexLock lock(mutex_);
    if (departure.rank < 0 || static_cast<std::size_t>(departure.rank) >= heard_.size())
      return false;
    if (departure.number <= heard_[static_cast<std::size_t>(departure.rank)]) return false;
    remember(departure);
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
  void remember(const wire::Departure& departure) REQUIRES(mutex_) {
    heard_[static_cast<std::size_t>(departure.rank)] = departure.number;
    if (departure.group == wire::kAllGroups) {
      of_all_groups_.push_back(departure);
      return;
    }
    if (!first_missed_.emplace(Key{departure.group, departure.rank}, departure.next).second) return;
    remembered_.push_back(departure);
    if (remembered_.size() > kRemembered) {
      first_missed_.erase({remembered_.front().group, remembered_.front().rank});
      remembered_.pop_front();
    }
  }

  using Key = std::pair<std::uint64_t, int>;
  /// A program may make and close groups for ever; who still waits in one closed so
  /// long ago waits for its deadline.
  static constexpr std::size_t kRemembered = 16'384;

  mutable Mutex mutex_;
  std::vector<wire::Departure> untold_ GUARDED_BY(mutex_);
  std::vector<std::uint64_t> heard_ GUARDED_BY(mutex_);  // by rank: the latest one's number
  std::map<Key, std::uint64_t> first_missed_ GUARDED_BY(mutex_);
  std::deque<wire::Departure> remembered_ GUARDED_BY(mutex_);  // oldest first
  std::vector<wire::Departure> of_all_groups_ GUARDED_BY(mutex_);
};

}  // namespace lockstep::coll
