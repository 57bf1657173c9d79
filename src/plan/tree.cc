#include "plan/tree.h"

#include <bit>
#include <cassert>

namespace lockstep::plan {
namespace {

void collect(Node node, Node range, std::vector<Node>& out) {
  if (range.contains(node)) {
    out.push_back(node);
    return;
  }
  if (node.hi <= range.lo || range.hi <= node.lo) return;
  collect(left(node), range, out);
  collect(right(node), range, out);
}

/// Emits the program of one node and returns the index of the first piece behind it.
std::size_t emit(Node node, std::span<const Node> pieces, std::size_t next,
                 std::vector<std::uint8_t>& out) {
  if (pieces[next] == node) {
    out.push_back(0);
    return next + 1;
  }
  assert(node.size() > 1);
  next = emit(left(node), pieces, next, out);
  next = emit(right(node), pieces, next, out);
  ++out.back();
  return next;
}

}  // namespace

int split(Node node) noexcept {
  assert(node.size() > 1);
  return node.lo + static_cast<int>(std::bit_floor(static_cast<unsigned>(node.size() - 1)));
}

bool is_subtree(Node range, int leaves) noexcept {
  Node node{0, leaves};
  while (node != range) {
    if (node.size() < 2 || !node.contains(range)) return false;
    const int middle = split(node);
    if (range.lo < middle) {
      node.hi = middle;
    } else {
      node.lo = middle;
    }
  }
  return true;
}

std::vector<Node> forest(Node range, int leaves) {
  std::vector<Node> out;
  collect({0, leaves}, range, out);
  return out;
}

std::vector<std::uint8_t> merges(std::span<const Node> pieces) {
  std::vector<std::uint8_t> out;
  out.reserve(pieces.size());
  emit({pieces.front().lo, pieces.back().hi}, pieces, 0, out);
  assert(out.size() == pieces.size());
  return out;
}

}  // namespace lockstep::plan
