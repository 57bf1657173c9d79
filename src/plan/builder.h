// Builder: writes down one rank's plan, one instruction a call.
//
// Instructions over no elements are dropped, so a maker need not treat ragged slices apart; both
// halves of a message are dropped alike because their counts are. Buffers of the engine are taken
// with take_*: each call gives a fresh region and grows the plan's demand.
//
//   Builder b(request, layout, rank);
//   b.send(peer, b.input(0), count);
//   return b.done();
#pragma once

#include <span>
#include <vector>

#include "plan/plan.h"
#include "plan/tree.h"

namespace lockstep::plan {

/// Whether a reduction completes its elements.
enum class Finish : std::uint8_t { no, yes };

/// A value of one subtree, and where it lies. Pieces of several leaves are partial sums.
struct Piece {
  Node node;
  Place place;
};

/// The place `by` elements further.
inline Place shifted(Place place, std::uint64_t by) {
  place.offset += by;
  return place;
}

/// Elements [begin, end) of a vector.
struct Slice {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  [[nodiscard]] std::uint64_t count() const noexcept { return end - begin; }
};

/// `count` elements in `parts` slices, as even as whole cache lines (of 16 elements) allow.
std::vector<Slice> split_evenly(std::uint64_t count, int parts);
/// Slices of the given lengths, side by side.
std::vector<Slice> split_by(std::span<const std::uint64_t> counts);
/// The j-th part of at most `chunk` elements of a slice; empty beyond its end.
Slice chunk_of(Slice slice, std::uint64_t chunk, std::uint64_t j) noexcept;
/// The chunk length of a plan for the request: at least 1, and longer than asked for if there would
/// be more than kMostChunks of them.
std::uint64_t chunk_length(const Request& request);
/// How many parts of `chunk` elements a slice has.
std::uint64_t chunks_in(Slice slice, std::uint64_t chunk) noexcept;

class Builder {
 public:
  Builder(const Request& request, const Layout& layout, int rank);

  [[nodiscard]] const Request& request() const noexcept { return request_; }
  [[nodiscard]] const Layout& layout() const noexcept { return layout_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int ranks() const noexcept { return layout_.ranks(); }
  /// The rank `steps` after (or before) this one, around the ring.
  [[nodiscard]] int neighbour(int steps) const noexcept;
  /// The replicas of a rank, as a range of leaves.
  [[nodiscard]] Node leaves_of(int rank) const noexcept;
  [[nodiscard]] Node root_node() const noexcept { return {0, layout_.replicas()}; }
  /// See chunk_length().
  [[nodiscard]] std::uint64_t chunk() const noexcept { return chunk_; }

  [[nodiscard]] Place input(std::uint64_t offset) const noexcept {
    return input_of(rank_, 0, offset);
  }
  [[nodiscard]] Place output(std::uint64_t offset) const noexcept {
    return output_of(rank_, offset);
  }
  [[nodiscard]] static Place input_of(int rank, int replica, std::uint64_t offset) noexcept;
  [[nodiscard]] static Place output_of(int rank, std::uint64_t offset) noexcept;
  [[nodiscard]] static Place slot_of(int rank, std::uint64_t offset) noexcept;
  Place take_scratch(std::uint64_t count);
  Place take_partial(std::uint64_t count);
  /// A region for a received piece: one leaf is a value, several are a partial sum.
  Place take_for(Node node, std::uint64_t count);
  /// `most`: what any rank takes.
  void take_slot(std::uint64_t count, std::uint64_t most);

  /// The inputs of a rank's replicas at an offset, one piece each.
  [[nodiscard]] std::vector<Piece> leaf_pieces(int rank, std::uint64_t offset) const;

  void send(int peer, Place from, std::uint64_t count);
  void receive(int peer, Place into, std::uint64_t count);
  void drain(int peer);
  void publish(std::uint32_t stage);
  void await(int peer, std::uint32_t stage);
  /// Awaits that stage of every other rank, nearest neighbour first.
  void await_others(std::uint32_t stage);
  void copy(Place from, Place to, std::uint64_t count);
  /// Combines adjacent pieces that tile one node, in the tree's order.
  void reduce(std::span<const Piece> pieces, std::span<const Place> targets, std::uint64_t count,
              Finish finish);
  void reduce(std::span<const Piece> pieces, Place target, std::uint64_t count, Finish finish) {
    reduce(pieces, std::span(&target, 1), count, finish);
  }
  /// Combines sources by an explicit program.
  void reduce(std::span<const Place> sources, std::span<const std::uint8_t> program,
              std::span<const Place> targets, std::uint64_t count, Finish finish);

  Plan done() { return std::move(plan_); }

 private:
  std::uint32_t add_places(std::span<const Place> places);
  std::uint32_t add_merges(std::span<const std::uint8_t> program);

  const Request& request_;
  const Layout& layout_;
  int rank_;
  std::uint64_t chunk_;
  Plan plan_;
};

}  // namespace lockstep::plan
