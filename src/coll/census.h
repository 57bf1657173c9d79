// Census: where all ranks stand in all groups, as rank 0 hears it with their pulses, and what of it
// is worth telling: who keeps the others of a group waiting. One thread.
//
//   census.note(rank, frame.positions());
//   for (auto& standings : census.news(now, patience)) tell(standings);
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "wire/frame.h"

namespace lockstep::coll {

class Census {
 public:
  explicit Census(int ranks) : said_(static_cast<std::size_t>(ranks)) {}

  /// In place of what the rank has said before.
  void note(int rank, std::vector<wire::Position> positions) {
    said_[static_cast<std::size_t>(rank)] = std::move(positions);
  }
  /// Groups of which the members have not been told how they stand now: a rank has been behind the
  /// others for so long, or none is any more.
  std::vector<wire::Standings> news(Time now, Duration patience);
  /// These two are in the same operation of a group and ask for different things: the members that
  /// ask for something else than most. Empty if that is not known, or if there is no majority.
  [[nodiscard]] std::vector<int> minority(int one, int other) const;

 private:
  struct Group {
    std::map<int, std::uint64_t> begun;  // by rank
    std::map<int, std::uint64_t> told;
    bool told_someone_behind = false;
    std::uint64_t lowest = UINT64_MAX;  // of them
    Time lowest_since{};
  };
  [[nodiscard]] std::vector<int> minority_at(const wire::Position& operation) const;
  static bool is_news(Group& group, Time now, Duration patience);

  std::vector<std::vector<wire::Position>> said_;  // by rank
  std::map<std::uint64_t, Group> groups_;          // that somebody speaks of
};

}  // namespace lockstep::coll
