// Cases: the layouts and requests that the sweep puts before every algorithm of a collective.
//
//   for (const Layout& layout : layouts_for(Extent::complete)) {
//     for (const Case& one : cases_for(Kind::reduce, layout.ranks(), Extent::complete)) ...
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace lockstep::plan {

/// brief: a few seconds. complete: all ranks from 1 to 17 and some up to 64, minutes.
enum class Extent : std::uint8_t { brief, complete };

/// A number of elements that grows with the number n of ranks, factor * n + offset, and the chunks
/// it is moved in.
struct Size {
  std::int64_t factor;
  std::int64_t offset;
  std::uint64_t chunk;

  [[nodiscard]] std::uint64_t elements(int n) const noexcept {
    return static_cast<std::uint64_t>(factor * n + offset);
  }
  friend auto operator<=>(const Size&, const Size&) = default;
};
inline constexpr std::uint64_t kWhole = std::uint64_t{1} << 14;  // a chunk larger than any size

struct Case {
  Size size;
  Request request;  // with either accumulator
};

/// Has the collective a root (or a sender)?
bool is_rooted(Kind kind) noexcept;

/// Every number of ranks on one host, on two and three of the same and of different size, and on as
/// many hosts as ranks; each with 1, 2, 3 and 5 replicas a rank; and some with uneven replicas.
std::vector<Layout> layouts_for(Extent extent);

/// Every size with every root; where there are many ranks most roots with the last size only. They
/// depend on the number of ranks alone, not on hosts and replicas.
std::vector<Case> cases_for(Kind kind, int ranks, Extent extent);

}  // namespace lockstep::plan
