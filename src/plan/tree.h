// The fixed tree: how a sum over global replicas is associated, whatever moves the bytes.
//
// The tree over replicas [0, n) has the root [0, n); a node [lo, hi) of more than one leaf splits
// at lo + the largest power of two below its size. So aligned blocks of a power of two are
// subtrees, and a block of replicas that is no subtree is a short list of them (its forest):
//
//   forest({0, 3}, 6) = {[0,2), [2,3)}        forest({3, 6}, 6) = {[3,4), [4,6)}
//   merges of those four = {0, 0, 2, 1}:      ([0,2) + ([2,3) + [3,4))) + [4,6)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::plan {

/// Replicas [lo, hi).
struct Node {
  int lo = 0;
  int hi = 0;

  [[nodiscard]] int size() const noexcept { return hi - lo; }
  [[nodiscard]] bool contains(Node other) const noexcept {
    return lo <= other.lo && other.hi <= hi;
  }
  friend bool operator==(const Node&, const Node&) = default;
};

/// First replica of the right child. The node has at least two leaves.
int split(Node node) noexcept;
inline Node left(Node node) noexcept { return {node.lo, split(node)}; }
inline Node right(Node node) noexcept { return {split(node), node.hi}; }

/// Whether the range is a node of the tree over [0, leaves).
bool is_subtree(Node range, int leaves) noexcept;

/// The maximal subtrees inside a range of the tree over [0, leaves), in order.
std::vector<Node> forest(Node range, int leaves);

/// The stack program that combines pieces, each a subtree, which side by side tile one node: after
/// piece i is pushed, the two topmost values are combined (lower one on the left) merges[i] times.
std::vector<std::uint8_t> merges(std::span<const Node> pieces);

}  // namespace lockstep::plan
