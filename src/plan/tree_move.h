// TreeMove: the parts of all ranks, up a binomial tree to the root or down from it.
#pragma once

#include <span>
#include <vector>

#include "plan/builder.h"

namespace lockstep::plan {

class TreeMove {
 public:
  /// counts[r] elements belong to rank r.
  TreeMove(Builder& b, std::span<const std::uint64_t> counts, int root);

  /// Each rank's input to its part of the root's output.
  void gather();
  /// Each rank's part of what lies at `from` on the root (in rank order) to its output.
  void scatter(Place from);

 private:
  [[nodiscard]] int rank_at(int position) const { return (root_ + position) % b_.ranks(); }
  /// First position that is not below the position.
  [[nodiscard]] int end_of(int position) const;
  /// From the order of positions to that of ranks.
  [[nodiscard]] std::uint64_t in_rank_order(std::uint64_t element) const;
  /// What a position and its parent tell each other, cut where rank order is broken: after the
  /// last rank comes rank 0.
  template <class Body>
  void each_message(int position, Body body) const;

  Builder& b_;
  int root_;
  int position_;
  std::vector<std::uint64_t> begins_;  // of positions, in their order; one more than ranks
  std::uint64_t root_part_ = 0;        // where the root's own part begins in rank order
};

}  // namespace lockstep::plan
