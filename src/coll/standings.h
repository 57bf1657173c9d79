// Standings: where this rank stands in its groups, and where everybody stands in them, as rank 0
// tells (census.h) when a rank keeps the others waiting.
//
// The link of a group counts its operations in a counter that it shares with this, so that it costs
// them one store; the control plane looks at it with every pulse.
//
// Any thread, but for positions(): one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "transport/begun.h"
#include "wire/frame.h"

namespace lockstep::coll {

class Standings {
 public:
  using Counter = std::shared_ptr<transport::Begun>;

  /// Where the group's link says which operation it has begun last; this rank is in the group for
  /// as long as somebody holds it.
  Counter enter(std::uint64_t group);

  /// Of the groups in which this rank has begun something last; ascending by group.
  std::vector<wire::Position> positions();

  /// What rank 0 has told. Kept for groups of this rank.
  void set(wire::Standings standings);
  /// Ranks that had not begun the group's operation when it was known that `rank` had; empty where
  /// nobody has told yet.
  [[nodiscard]] std::vector<int> behind(std::uint64_t group, int rank,
                                        std::uint64_t sequence) const;

 private:
  /// A rank that is stuck has been in none of its other groups since, so it tells of the one in
  /// which the others wait for it, unless it is in very many at a time.
  static constexpr std::size_t kMost = 16;

  struct Group {
    std::weak_ptr<transport::Begun> begun;
    std::uint64_t seen = 0;
    std::uint64_t moved = 0;          // the look that saw it move last; 0: none yet
    std::vector<std::uint64_t> told;  // by rank of the generation
  };
  mutable Mutex mutex_;
  std::map<std::uint64_t, Group> groups_ GUARDED_BY(mutex_);
  std::uint64_t looks_ GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep::coll
