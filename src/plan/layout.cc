#include "plan/layout.h"

#include <algorithm>
#include <cassert>
#include <set>
#include <utility>

namespace lockstep::plan {

Layout Layout::uniform(int ranks, int replicas_per_rank) {
  return Layout(std::vector<int>(static_cast<std::size_t>(ranks), replicas_per_rank));
}

Layout::Layout(const std::vector<int>& replicas, std::vector<int> host) : host_(std::move(host)) {
  assert(!replicas.empty());
  assert(host_.empty() || host_.size() == replicas.size());
  first_.reserve(replicas.size() + 1);
  first_.push_back(0);
  for (const int here : replicas) {
    assert(here >= 1);
    first_.push_back(first_.back() + here);
  }
  host_.resize(replicas.size(), 0);
}

int Layout::most_replicas() const noexcept {
  int most = 0;
  for (int rank = 0; rank < ranks(); ++rank) most = std::max(most, replicas(rank));
  return most;
}

int Layout::hosts() const {
  return static_cast<int>(std::set<int>(host_.begin(), host_.end()).size());
}

int Layout::rank_of(int replica) const noexcept {
  const auto above = std::upper_bound(first_.begin(), first_.end(), replica);
  return static_cast<int>(above - first_.begin()) - 1;
}

}  // namespace lockstep::plan
