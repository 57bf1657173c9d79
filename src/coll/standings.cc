#include "coll/standings.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace lockstep::coll {

Standings::Counter Standings::enter(std::uint64_t group) {
  auto counter = std::make_shared<transport::Begun>();
  const MutexLock lock(mutex_);
  groups_[group].begun = counter;
  return counter;
}

std::vector<wire::Position> Standings::positions() {
  const MutexLock lock(mutex_);
  ++looks_;
  std::vector<std::pair<std::uint64_t, wire::Position>> by_age;
  for (auto each = groups_.begin(); each != groups_.end();) {
    auto& [id, group] = *each;
    const Counter counter = group.begun.lock();
    if (!counter) {
      each = groups_.erase(each);
      continue;
    }
    const std::uint64_t begun = counter->sequence();
    if (begun != group.seen || group.moved == 0) group.moved = looks_;
    group.seen = begun;
    by_age.emplace_back(looks_ - group.moved, wire::Position{id, begun, counter->request()});
    ++each;
  }
  std::stable_sort(by_age.begin(), by_age.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  by_age.resize(std::min(by_age.size(), kMost));
  std::vector<wire::Position> positions;
  std::transform(by_age.begin(), by_age.end(), std::back_inserter(positions),
                 [](const auto& each) { return each.second; });
  std::sort(positions.begin(), positions.end(),
            [](const auto& a, const auto& b) { return a.group < b.group; });
  return positions;
}

void Standings::set(wire::Standings standings) {
  const MutexLock lock(mutex_);
  const auto found = groups_.find(standings.group);
  if (found != groups_.end()) found->second.told = std::move(standings.begun);
}

std::vector<int> Standings::behind(std::uint64_t group, int rank, std::uint64_t sequence) const {
  const MutexLock lock(mutex_);
  std::vector<int> ranks;
  const auto found = groups_.find(group);
  if (found == groups_.end()) return ranks;
  const std::vector<std::uint64_t>& told = found->second.told;
  const auto own = static_cast<std::size_t>(rank);
  if (own >= told.size() || told[own] != sequence) return ranks;  // of another time
  for (std::size_t other = 0; other < told.size(); ++other) {
    if (told[other] < sequence) ranks.push_back(static_cast<int>(other));
  }
  return ranks;
}

}  // namespace lockstep::coll
