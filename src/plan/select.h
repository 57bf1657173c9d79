// Choosing an algorithm: by size, topology and measured figures (cost.h), unless the user said
// otherwise.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "plan/algorithm.h"
#include "plan/cost.h"

namespace lockstep::plan {

/// The user's word, e.g. "all_reduce=direct:0-64K,halving:64K-;broadcast=tree": for sizes in bytes
/// [from, to) take that algorithm. Later entries win where ranges overlap.
struct Override {
  Kind kind;
  std::string algorithm;
  std::uint64_t from = 0;
  std::uint64_t to = UINT64_MAX;
};

struct Overrides {
  std::vector<Override> entries;
};

/// InvalidUsage with the offset, the word and what was expected there, if the text is malformed or
/// names an unknown collective or algorithm. An empty text gives no overrides.
Status parse_overrides(std::string_view text, Overrides& out);

struct Situation {
  const Layout& layout;
  Access access = Access::shared;   // best access all pairs of ranks have
  Order order = Order::fixed_tree;  // what the caller allows
  std::uint64_t element_bytes = 4;
  const Costs& costs;
  const Overrides& overrides;
  /// Size of a slot (Buffer::slot); algorithms that would need larger ones are refused.
  std::size_t slot_bytes = SIZE_MAX;
};

struct Candidate {
  const Algorithm* algorithm;
  std::string refusal = {};  // empty: usable
  double microseconds = 0;   // estimate; only if usable
  int peers = 0;             // ranks that one rank exchanges messages with, at most
};

/// Each pair of ranks that exchanges messages costs a connection, which takes descriptors, memory
/// and time to make. So that their number grows with log2(n), an algorithm that gives a rank more
/// peers than this is taken only for more than kSmallBytes, and only if it is estimated more than
/// kWorthConnections times as fast as the best one below the limit.
int most_peers(int ranks) noexcept;
inline constexpr std::uint64_t kSmallBytes = std::uint64_t{64} << 10;
inline constexpr double kWorthConnections = 2;

struct Choice {
  const Algorithm* algorithm;  // never null: every kind has one that always applies
  std::string why;
  std::vector<Candidate> candidates;  // all of the kind, the best usable one first
};

/// An override that cannot serve the request is ignored and `why` says so.
Choice select(const Request& request, const Situation& situation);

}  // namespace lockstep::plan
