// Layout: which global replicas each rank holds, and on which host each rank runs.
//
// Replicas are numbered across ranks: rank r holds the contiguous range [first(r), first(r + 1)).
#pragma once

#include <vector>

namespace lockstep::plan {

class Layout {
 public:
  /// `ranks` ranks with the same number of replicas each, all on one host.
  static Layout uniform(int ranks, int replicas_per_rank = 1);
  /// replicas[r] >= 1 replicas on rank r; host[r] is any label, equal for ranks of one host (empty:
  /// one host for all).
  explicit Layout(const std::vector<int>& replicas, std::vector<int> host = {});

  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(first_.size()) - 1; }
  [[nodiscard]] int replicas() const noexcept { return first_.back(); }
  [[nodiscard]] int replicas(int rank) const noexcept { return first_[rank + 1] - first_[rank]; }
  /// Of the rank that has most.
  [[nodiscard]] int most_replicas() const noexcept;
  [[nodiscard]] int first(int rank) const noexcept { return first_[rank]; }
  [[nodiscard]] int rank_of(int replica) const noexcept;
  [[nodiscard]] int host(int rank) const noexcept { return host_[rank]; }
  /// Different ones.
  [[nodiscard]] int hosts() const;

  friend bool operator==(const Layout&, const Layout&) = default;

 private:
  std::vector<int> first_;  // ranks + 1 entries
  std::vector<int> host_;
};

}  // namespace lockstep::plan
