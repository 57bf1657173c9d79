// GroupSpec: a group of a generation.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::coll {

/// The id of the group of all ranks.
inline constexpr std::uint64_t kWorld = 0;

/// collectives: all members make the same calls. messages: two members of the group `parent`, the
/// first of which sends to the second; each makes it when it needs it.
enum class Purpose : std::uint8_t { collectives, messages };

/// Which ranks of the generation, how many replicas each has, and an id all members agree on.
struct GroupSpec {
  std::uint64_t id = kWorld;
  std::vector<int> members;
  std::vector<int> replicas;
  std::vector<int> hosts;
  Purpose purpose = Purpose::collectives;
  std::uint64_t parent = kWorld;
};

}  // namespace lockstep::coll
