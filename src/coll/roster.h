// Roster: what the ranks of a generation told each other when they joined.
#pragma once

#include <cstdint>
#include <vector>

#include "wire/hello.h"

namespace lockstep::coll {

struct Roster {
  std::uint64_t generation = 0;
  int rank = 0;
  std::vector<wire::Hello> members;  // by rank

  [[nodiscard]] int size() const noexcept { return static_cast<int>(members.size()); }
  [[nodiscard]] const wire::Hello& at(int which) const {
    return members[static_cast<std::size_t>(which)];
  }
  [[nodiscard]] const wire::Hello& own() const { return at(rank); }
  [[nodiscard]] bool same_host(int a, int b) const { return at(a).host == at(b).host; }
  /// The ranks of this rank's host, ascending.
  [[nodiscard]] std::vector<int> neighbours() const {
    std::vector<int> ranks;
    for (int other = 0; other < size(); ++other) {
      if (same_host(rank, other)) ranks.push_back(other);
    }
    return ranks;
  }
  /// A label for each rank's host, counted by first appearance.
  [[nodiscard]] std::vector<int> host_labels() const {
    std::vector<std::uint64_t> known;
    std::vector<int> labels;
    for (const wire::Hello& member : members) {
      std::size_t label = 0;
      while (label < known.size() && known[label] != member.host) ++label;
      if (label == known.size()) known.push_back(member.host);
      labels.push_back(static_cast<int>(label));
    }
    return labels;
  }
};

}  // namespace lockstep::coll
