// Reductions along the fixed tree itself. Every node has a home rank: the root's if the root holds
// some of its replicas, else that of its lowest replica. The children's homes send what they have
// to the node's home, which adds only when it must send or finish: one pass over all it received.
// Pipelined by chunks; sums to be sent alternate between two banks.
#include <algorithm>

#include "plan/binomial.h"
#include "plan/builder.h"
#include "plan/makers.h"
#include "plan/tree_move.h"

namespace lockstep::plan {
namespace {

/// Whether a rank hears back what its sums became, and so learns that they have been received.
enum class Echo : std::uint8_t { no, yes };

class TreeReduce {
 public:
  /// The sum of `count` elements, to `result` on the root.
  TreeReduce(Builder& b, int root, Echo echo, std::uint64_t count, Place result)
      : b_(b), root_(root), echo_(echo), result_(result) {
    final_ = visit(b_.root_node());
    const std::uint64_t longest = std::min(b_.chunk(), count);
    for (const Region& region : regions_) {
      const Place first = b_.take_for(region.node, longest);
      banks_[0].push_back(first);
      banks_[1].push_back(region.sent ? b_.take_for(region.node, longest) : first);
    }
  }

  /// Brings the sum of chunk j to the root.
  void gather(std::uint64_t j, Slice slice) {
    for (const Move& move : moves_) {
      if (move.into >= 0) {
        b_.receive(move.peer, place(j, move.into), slice.count());
        continue;
      }
      Part from = move.parts.front();
      if (move.sum >= 0) {
        // Once for both banks: a drain waits for everything sent.
        if (echo_ == Echo::no && j >= 2 && j % 2 == 0) b_.drain(move.peer);
        from.region = move.sum;
        b_.reduce(pieces(j, slice, move.parts), place(j, move.sum), slice.count(), Finish::no);
      }
      b_.send(move.peer, pieces(j, slice, {&from, 1}).front().place, slice.count());
    }
    if (b_.rank() == root_) {
      b_.reduce(pieces(j, slice, final_), shifted(result_, slice.begin), slice.count(),
                Finish::yes);
    }
  }

 private:
  /// A piece of the sum: in a region of the bank, or (region < 0) a leaf in the input.
  struct Part {
    Node node;
    int region;
  };
  struct Region {
    Node node;
    bool sent = false;  // needs a second bank: it is written while its last message is on its way
  };
  /// A message of every chunk: received into region `into`, or (into < 0) the sum of the parts,
  /// which goes to region `sum` unless it is a single leaf.
  struct Move {
    int peer;
    int into = -1;
    int sum = -1;
    std::vector<Part> parts = {};
  };

  [[nodiscard]] int home(Node node) const {
    const Node roots = b_.leaves_of(root_);
    const bool inside = node.lo < roots.hi && roots.lo < node.hi;
    return inside ? root_ : b_.layout().rank_of(node.lo);
  }

  int take(Region region) {
    regions_.push_back(region);
    return static_cast<int>(regions_.size()) - 1;
  }

  /// What this rank holds of the node in the end, if it is the node's home.
  std::vector<Part> visit(Node node) {
    const int low = b_.layout().rank_of(node.lo);
    if (low == b_.layout().rank_of(node.hi - 1)) {
      std::vector<Part> parts;
      for (int leaf = node.lo; low == b_.rank() && leaf < node.hi; ++leaf) {
        parts.push_back({{leaf, leaf + 1}, -1});
      }
      return parts;
    }
    std::vector<Part> parts = bring(left(node), home(node));
    const std::vector<Part> more = bring(right(node), home(node));
    parts.insert(parts.end(), more.begin(), more.end());
    return parts;
  }

  /// Visits a child and moves its sum to the parent's home.
  std::vector<Part> bring(Node child, int to) {
    std::vector<Part> parts = visit(child);
    const int from = home(child);
    if (from == to) return parts;
    if (b_.rank() == from) {
      const int sum = child.size() > 1 ? take({.node = child, .sent = true}) : -1;
      moves_.push_back({.peer = to, .sum = sum, .parts = std::move(parts)});
      return {};
    }
    if (b_.rank() != to) return {};
    const int into = take({.node = child});
    moves_.push_back({.peer = from, .into = into});
    return {{child, into}};
  }

  [[nodiscard]] Place place(std::uint64_t j, int region) const {
    return banks_[j % 2][static_cast<std::size_t>(region)];
  }
  [[nodiscard]] std::vector<Piece> pieces(std::uint64_t j, Slice slice,
                                          std::span<const Part> parts) const {
    std::vector<Piece> out;
    out.reserve(parts.size());
    for (const Part& part : parts) {
      const int replica = part.node.lo - b_.layout().first(b_.rank());
      out.push_back({part.node, part.region >= 0
                                    ? place(j, part.region)
                                    : Builder::input_of(b_.rank(), replica, slice.begin)});
    }
    return out;
  }

  Builder& b_;
  int root_;
  Echo echo_;
  Place result_;
  std::vector<Move> moves_;  // of every chunk, in order
  std::vector<Part> final_;  // what the root adds in the end
  std::vector<Region> regions_;
  std::vector<Place> banks_[2];
};

}  // namespace

Plan reduce_tree(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  TreeReduce tree(b, request.root, Echo::no, request.count, b.output(0));
  const Slice all{0, request.count};
  for (std::uint64_t j = 0; j < chunks_in(all, b.chunk()); ++j) {
    tree.gather(j, chunk_of(all, b.chunk(), j));
  }
  return b.done();
}

/// To rank 0, and each rank's part of the sum down a binomial tree.
Plan reduce_scatter_tree(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  const Slice all{0, split_by(request.counts).back().end};
  const Place sum = rank == 0 ? b.take_scratch(all.count()) : Place();
  TreeReduce tree(b, 0, Echo::no, all.count(), sum);
  for (std::uint64_t j = 0; j < chunks_in(all, b.chunk()); ++j) {
    tree.gather(j, chunk_of(all, b.chunk(), j));
  }
  TreeMove(b, request.counts, 0).scatter(sum);
  return b.done();
}

/// To rank 0 and down a binomial tree. Sums of the next chunk go up before the result of this one
/// comes down; rank 0 sends a result as soon as it has it.
Plan all_reduce_tree(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  TreeReduce tree(b, 0, Echo::yes, request.count, b.output(0));
  const std::vector<int> children = binomial_children(rank, b.ranks());
  const Slice all{0, request.count};
  const std::uint64_t chunks = chunks_in(all, b.chunk());
  const auto up = [&](std::uint64_t j) {
    if (j < chunks) tree.gather(j, chunk_of(all, b.chunk(), j));
  };
  if (rank != 0) up(0);
  for (std::uint64_t j = 0; j < chunks; ++j) {
    const Slice slice = chunk_of(all, b.chunk(), j);
    up(rank == 0 ? j : j + 1);
    if (rank != 0) b.receive(binomial_parent(rank), b.output(slice.begin), slice.count());
    for (const int child : children) b.send(child, b.output(slice.begin), slice.count());
  }
  return b.done();
}

}  // namespace lockstep::plan
