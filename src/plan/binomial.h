// The binomial tree over n ranks, numbered from its root (position 0): the parent of a position is
// that position without its lowest set bit.
#pragma once

#include <bit>
#include <vector>

namespace lockstep::plan {

/// Of a position other than the root.
inline int binomial_parent(int position) noexcept { return position & (position - 1); }

/// Children that exist, the one with the largest subtree first.
inline std::vector<int> binomial_children(int position, int n) {
  const int below = position == 0 ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(n)))
                                  : position & -position;
  std::vector<int> children;
  for (int step = below / 2; step >= 1; step /= 2) {
    if (position + step < n) children.push_back(position + step);
  }
  return children;
}

}  // namespace lockstep::plan
