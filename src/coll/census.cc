#include "coll/census.h"

#include <algorithm>

namespace lockstep::coll {

std::vector<wire::Standings> Census::news(Time now, Duration patience) {
  for (auto& [id, group] : groups_) group.begun.clear();
  for (std::size_t rank = 0; rank < said_.size(); ++rank) {
    for (const wire::Position& position : said_[rank]) {
      groups_[position.group].begun[static_cast<int>(rank)] = position.begun;
    }
  }
  std::erase_if(groups_, [](const auto& each) { return each.second.begun.empty(); });
  std::vector<wire::Standings> news;
  for (auto& [id, group] : groups_) {
    if (!is_news(group, now, patience)) continue;
    auto& standings = news.emplace_back();
    standings.group = id;
    standings.begun.assign(said_.size(), wire::kNoPosition);
    for (const auto& [rank, begun] : group.begun) {
      standings.begun[static_cast<std::size_t>(rank)] = begun;
    }
  }
  return news;
}

std::vector<int> Census::minority(int one, int other) const {
  for (const wire::Position& ours : said_[static_cast<std::size_t>(one)]) {
    for (const wire::Position& theirs : said_[static_cast<std::size_t>(other)]) {
      const bool same_operation = ours.group == theirs.group && ours.begun == theirs.begun;
      if (same_operation && ours.request != theirs.request) return minority_at(ours);
    }
  }
  return {};
}

std::vector<int> Census::minority_at(const wire::Position& operation) const {
  std::map<std::uint64_t, std::vector<int>> by_request;
  for (std::size_t rank = 0; rank < said_.size(); ++rank) {
    for (const wire::Position& position : said_[rank]) {
      if (position.group != operation.group || position.begun != operation.begun) continue;
      by_request[position.request].push_back(static_cast<int>(rank));
    }
  }
  std::vector<std::vector<int>> parties;
  for (auto& [request, ranks] : by_request) parties.push_back(std::move(ranks));
  std::sort(parties.begin(), parties.end(),
            [](const auto& a, const auto& b) { return a.size() > b.size(); });
  if (parties.size() < 2 || parties[0].size() == parties[1].size()) return {};
  std::vector<int> minority;
  for (auto party = parties.begin() + 1; party != parties.end(); ++party) {
    minority.insert(minority.end(), party->begin(), party->end());
  }
  std::sort(minority.begin(), minority.end());
  return minority;
}

bool Census::is_news(Group& group, Time now, Duration patience) {
  const auto [lowest, highest] =
      std::minmax_element(group.begun.begin(), group.begun.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; });
  if (lowest->second != group.lowest) {
    group.lowest = lowest->second;
    group.lowest_since = now;
  }
  if (group.begun == group.told) return false;
  // Who is behind is told after a while, and that nobody is any more at once.
  const bool someone_behind = lowest->second != highest->second;
  if (someone_behind ? now - group.lowest_since < patience : !group.told_someone_behind) {
    return false;
  }
  group.told = group.begun;
  group.told_someone_behind = someone_behind;
  return true;
}

}  // namespace lockstep::coll
