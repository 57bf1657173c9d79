// Reductions along the fixed tree itself. Every node has a home rank: the root's if the root holds
// some of its replicas, else that of its lowest replica. The children's homes send what they have
// to the node's home, which adds only when it must send or finish: one pass over all it received.
// Pipelined by chunks; regions alternate between two banks.
#include <algorithm>

#include "plan/binomial.h"
#include "plan/builder.h"
#include "plan/makers.h"

namespace lockstep::plan {
namespace {

class TreeReduce {
 public:
  TreeReduce(Builder& b, int root) : b_(b), root_(root) {}

  /// Brings the sum of chunk j to the root's output. `drains` tells that no result comes back from
  /// which this rank would learn that its sums have been received.
  void gather(std::uint64_t j, Slice slice, bool drains) {
    bank_ = j % 2;
    next_[bank_] = 0;
    slice_ = slice;
    drains_ = drains && j >= 2;
    std::vector<Piece> pieces = visit(b_.root_node());
    if (b_.rank() == root_) {
      b_.reduce(pieces, b_.output(slice.begin), slice.count(), Finish::yes);
    }
  }

 private:
  [[nodiscard]] int home(Node node) const {
    const Node roots = b_.leaves_of(root_);
    const bool inside = node.lo < roots.hi && roots.lo < node.hi;
    return inside ? root_ : b_.layout().rank_of(node.lo);
  }

  /// What this rank holds of the node afterwards, if it is the node's home.
  std::vector<Piece> visit(Node node) {
    const int low = b_.layout().rank_of(node.lo);
    if (low == b_.layout().rank_of(node.hi - 1)) {
      if (low != b_.rank()) return {};
      const std::vector<Piece> leaves = b_.leaf_pieces(low, slice_.begin);
      const auto first = leaves.begin() + (node.lo - b_.layout().first(low));
      return {first, first + node.size()};
    }
    std::vector<Piece> pieces = bring(left(node), home(node));
    const std::vector<Piece> more = bring(right(node), home(node));
    pieces.insert(pieces.end(), more.begin(), more.end());
    return pieces;
  }

  /// Visits a child and moves its sum to the parent's home.
  std::vector<Piece> bring(Node child, int to) {
    std::vector<Piece> pieces = visit(child);
    const int from = home(child);
    if (from == to) return pieces;
    if (b_.rank() == from) {
      Place place = pieces.front().place;
      if (child.size() > 1) {
        place = take(child);
        if (drains_) b_.drain(to);
        b_.reduce(pieces, place, slice_.count(), Finish::no);
      }
      b_.send(to, place, slice_.count());
      return {};
    }
    if (b_.rank() != to) return {};
    const Place place = take(child);
    b_.receive(from, place, slice_.count());
    return {{child, place}};
  }

  /// The next region of the bank: every chunk asks for the same ones in the same order.
  Place take(Node node) {
    std::vector<Place>& places = places_[bank_];
    if (next_[bank_] == places.size()) {
      places.push_back(b_.take_for(node, std::min(b_.chunk(), b_.request().count)));
    }
    return places[next_[bank_]++];
  }

  Builder& b_;
  int root_;
  Slice slice_;
  bool drains_ = false;
  std::size_t bank_ = 0;
  std::vector<Place> places_[2];
  std::size_t next_[2] = {};
};

}  // namespace

Plan reduce_tree(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  TreeReduce tree(b, request.root);
  const Slice all{0, request.count};
  for (std::uint64_t j = 0; j < chunks_in(all, b.chunk()); ++j) {
    tree.gather(j, chunk_of(all, b.chunk(), j), true);
  }
  return b.done();
}

/// To rank 0 and down a binomial tree; the sums of the next chunk go up before the result of this
/// one comes down.
Plan all_reduce_tree(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  TreeReduce tree(b, 0);
  const std::vector<int> children = binomial_children(rank, b.ranks());
  const Slice all{0, request.count};
  const std::uint64_t chunks = chunks_in(all, b.chunk());
  const auto up = [&](std::uint64_t j) {
    if (j < chunks) tree.gather(j, chunk_of(all, b.chunk(), j), false);
  };
  up(0);
  for (std::uint64_t j = 0; j < chunks; ++j) {
    const Slice slice = chunk_of(all, b.chunk(), j);
    // Rank 0 sends a result as soon as it has it.
    if (rank != 0) up(j + 1);
    if (rank != 0) b.receive(binomial_parent(rank), b.output(slice.begin), slice.count());
    for (const int child : children) b.send(child, b.output(slice.begin), slice.count());
    if (rank == 0) up(j + 1);
  }
  return b.done();
}

}  // namespace lockstep::plan
