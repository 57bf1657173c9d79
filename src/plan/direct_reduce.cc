// The direct exchange: every element has one owner. Each rank sends the owner what it has of the
// sum, a subtree a message (single leaves as values, larger subtrees as partial sums); the owner
// adds all pieces in the tree's order in one pass. It is the fixed tree for every layout, and the
// one algorithm that sends 16-bit values as 16 bits while they are added in 32.
//
// Pipelined by chunks. Per ordered pair of ranks the messages are: pieces 0, pieces 1, result 0,
// pieces 2, result 1, ... so the wire is busy with the next pieces while a chunk is added.
#include <algorithm>

#include "plan/builder.h"
#include "plan/makers.h"

namespace lockstep::plan {
namespace {

enum class Share : std::uint8_t { no, yes };

class Exchange {
 public:
  /// slices[r] is what rank r owns; its results go to the output at results[r] + (position in the
  /// slice). Share::yes: owners send their results to everybody.
  Exchange(Builder& b, std::vector<Slice> slices, std::vector<std::uint64_t> results, Share share)
      : b_(b), slices_(std::move(slices)), results_(std::move(results)), share_(share) {
    const auto n = static_cast<std::size_t>(b_.ranks());
    std::uint64_t longest = 0;
    for (const Slice slice : slices_) {
      longest = std::max(longest, slice.count());
      rounds_ = std::max(rounds_, chunks_in(slice, b_.chunk()));
    }
    const int replicas = b_.layout().replicas();
    for (int rank = 0; rank < b_.ranks(); ++rank) {
      forests_.push_back(forest(b_.leaves_of(rank), replicas));
    }
    const std::uint64_t own = std::min(b_.chunk(), mine().count());
    const std::uint64_t theirs = std::min(b_.chunk(), longest);
    received_.resize(n);
    for (int peer = 0; peer < b_.ranks(); ++peer) {
      if (peer == b_.rank()) continue;
      for (const Node node : forests_[at(peer)]) {
        received_[at(peer)].push_back({node, b_.take_for(node, own)});
      }
    }
    for (auto& bank : staged_) {
      bank.resize(n);
      for (int peer = 0; peer < b_.ranks(); ++peer) {
        if (peer == b_.rank() || slices_[at(peer)].count() == 0) continue;
        for (const Node node : forests_[at(b_.rank())]) {
          if (node.size() > 1) bank[at(peer)].push_back(b_.take_partial(theirs));
        }
      }
    }
  }

  void run() {
    send_pieces(0);
    receive_pieces(0);
    for (std::uint64_t j = 0; j < rounds_; ++j) {
      send_pieces(j + 1);
      combine(j);
      if (share_ == Share::yes) send_results(j);
      receive_pieces(j + 1);
      if (share_ == Share::yes) receive_results(j);
    }
  }

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  [[nodiscard]] Slice mine() const { return slices_[at(b_.rank())]; }
  [[nodiscard]] Slice part(int owner, std::uint64_t j) const {
    return chunk_of(slices_[at(owner)], b_.chunk(), j);
  }
  [[nodiscard]] Place result(int owner, Slice slice) const {
    return b_.output(results_[at(owner)] + (slice.begin - slices_[at(owner)].begin));
  }

  void send_pieces(std::uint64_t j) {
    for (int i = 1; i < b_.ranks(); ++i) {
      const int owner = b_.neighbour(i);
      const Slice slice = part(owner, j);
      if (slice.count() == 0) continue;
      const std::vector<Piece> leaves = b_.leaf_pieces(b_.rank(), slice.begin);
      const std::vector<Place>& staged = staged_[j % 2][at(owner)];
      // With shared results the owner's result of chunk j - 2 has come back, so it has these. Else
      // one drain serves both banks: it waits for everything sent.
      if (share_ == Share::no && j >= 2 && j % 2 == 0 && !staged.empty()) b_.drain(owner);
      std::size_t next_leaf = 0;
      std::size_t next_staged = 0;
      for (const Node node : forests_[at(b_.rank())]) {
        const auto piece = std::span(leaves).subspan(next_leaf, at(node.size()));
        next_leaf += piece.size();
        if (node.size() == 1) {
          b_.send(owner, piece.front().place, slice.count());
        } else {
          b_.reduce(piece, staged[next_staged], slice.count(), Finish::no);
          b_.send(owner, staged[next_staged], slice.count());
          ++next_staged;
        }
      }
    }
  }

  void receive_pieces(std::uint64_t j) {
    const Slice slice = part(b_.rank(), j);
    for (int i = 1; i < b_.ranks(); ++i) {
      const int peer = b_.neighbour(-i);
      for (const Piece& piece : received_[at(peer)]) {
        b_.receive(peer, piece.place, slice.count());
      }
    }
  }

  void combine(std::uint64_t j) {
    const Slice slice = part(b_.rank(), j);
    std::vector<Piece> pieces;
    for (int peer = 0; peer < b_.ranks(); ++peer) {
      const std::vector<Piece> here =
          peer == b_.rank() ? b_.leaf_pieces(peer, slice.begin) : received_[at(peer)];
      pieces.insert(pieces.end(), here.begin(), here.end());
    }
    b_.reduce(pieces, result(b_.rank(), slice), slice.count(), Finish::yes);
  }

  void send_results(std::uint64_t j) {
    const Slice slice = part(b_.rank(), j);
    for (int i = 1; i < b_.ranks(); ++i) {
      b_.send(b_.neighbour(i), result(b_.rank(), slice), slice.count());
    }
  }

  void receive_results(std::uint64_t j) {
    for (int i = 1; i < b_.ranks(); ++i) {
      const int owner = b_.neighbour(-i);
      const Slice slice = part(owner, j);
      b_.receive(owner, result(owner, slice), slice.count());
    }
  }

  Builder& b_;
  std::vector<Slice> slices_;
  std::vector<std::uint64_t> results_;
  Share share_;
  std::uint64_t rounds_ = 0;
  std::vector<std::vector<Node>> forests_;     // by rank
  std::vector<std::vector<Piece>> received_;   // by peer: used anew for every chunk
  std::vector<std::vector<Place>> staged_[2];  // two banks, by peer: partial sums to be sent
};

}  // namespace

Plan all_reduce_direct(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  const std::vector<Slice> slices = split_evenly(request.count, b.ranks());
  std::vector<std::uint64_t> results;
  results.reserve(slices.size());
  for (const Slice slice : slices) results.push_back(slice.begin);
  Exchange(b, slices, std::move(results), Share::yes).run();
  return b.done();
}

Plan reduce_direct(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  std::vector<Slice> slices(static_cast<std::size_t>(b.ranks()));
  slices[static_cast<std::size_t>(request.root)] = {0, request.count};
  Exchange(b, std::move(slices), std::vector<std::uint64_t>(static_cast<std::size_t>(b.ranks())),
           Share::no)
      .run();
  return b.done();
}

Plan reduce_scatter_direct(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  Exchange(b, split_by(request.counts), std::vector<std::uint64_t>(request.counts.size()),
           Share::no)
      .run();
  return b.done();
}

}  // namespace lockstep::plan
