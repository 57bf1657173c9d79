// Rings: every rank talks to its two neighbours only. A sum collects one rank's values a step, so
// its order depends on where it started: not the fixed tree.
#include <algorithm>

#include "plan/builder.h"
#include "plan/makers.h"

namespace lockstep::plan {
namespace {

class Ring {
 public:
  Ring(Builder& b, std::vector<Slice> slices) : b_(b), slices_(std::move(slices)) {}

  /// Leaves the sum of slice r on rank r, at result + (position in the slice). Partial sums lie at
  /// sums + (position in the vector).
  void reduce_scatter(Place sums, Place result) {
    const int n = b_.ranks();
    if (n == 1) {
      b_.reduce(b_.leaf_pieces(0, 0), result, slices_[0].count(), Finish::yes);
      return;
    }
    const Place landing = take_landing();
    each_chunk(slice(-1), [&](Slice part) {
      const std::vector<Piece> leaves = b_.leaf_pieces(b_.rank(), part.begin);
      Place place = leaves.front().place;
      if (leaves.size() > 1) {
        place = shifted(sums, part.begin);
        reduce_local({}, part, place, Finish::no);
      }
      b_.send(b_.neighbour(1), place, part.count());
    });
    for (int step = 1; step < n; ++step) {
      const bool last = step == n - 1;
      // The left neighbour's own values come first; they are values only if it has one replica.
      const bool values = step == 1 && b_.layout().replicas(b_.neighbour(-1)) == 1;
      const Place heard = values ? value_landing_ : landing;
      each_chunk(slice(-1 - step), [&](Slice part) {
        b_.receive(b_.neighbour(-1), heard, part.count());
        const Place target =
            last ? shifted(result, part.begin - slice(0).begin) : shifted(sums, part.begin);
        reduce_local(&heard, part, target, last ? Finish::yes : Finish::no);
        if (!last) b_.send(b_.neighbour(1), target, part.count());
      });
    }
  }

  /// Every rank has slice r of the output; afterwards all have all.
  void all_gather() {
    const int n = b_.ranks();
    if (n == 1) return;
    each_chunk(slice(0),
               [&](Slice part) { b_.send(b_.neighbour(1), b_.output(part.begin), part.count()); });
    for (int step = 1; step < n; ++step) {
      each_chunk(slice(-step), [&](Slice part) {
        b_.receive(b_.neighbour(-1), b_.output(part.begin), part.count());
        if (step < n - 1) b_.send(b_.neighbour(1), b_.output(part.begin), part.count());
      });
    }
  }

 private:
  /// The slice of the rank `steps` further.
  [[nodiscard]] Slice slice(int steps) const {
    return slices_[static_cast<std::size_t>(b_.neighbour(steps))];
  }

  template <class Body>
  void each_chunk(Slice whole, Body body) const {
    for (std::uint64_t j = 0; j < chunks_in(whole, b_.chunk()); ++j) {
      body(chunk_of(whole, b_.chunk(), j));
    }
  }

  Place take_landing() {
    std::uint64_t longest = 0;
    for (const Slice each : slices_) longest = std::max(longest, each.count());
    longest = std::min(longest, b_.chunk());
    value_landing_ = b_.take_scratch(longest);
    return b_.take_partial(longest);
  }

  /// heard + (this rank's replicas as their own tree).
  void reduce_local(const Place* heard, Slice part, Place target, Finish finish) {
    std::vector<Place> sources;
    std::vector<std::uint8_t> program;
    if (heard != nullptr) {
      sources.push_back(*heard);
      program.push_back(0);
    }
    std::vector<Node> nodes;
    for (const Piece& leaf : b_.leaf_pieces(b_.rank(), part.begin)) {
      sources.push_back(leaf.place);
      nodes.push_back({leaf.place.index, leaf.place.index + 1});
    }
    const std::vector<std::uint8_t> local = merges(nodes);
    program.insert(program.end(), local.begin(), local.end());
    if (heard != nullptr) ++program.back();
    b_.reduce(sources, program, {&target, 1}, part.count(), finish);
  }

  Builder& b_;
  std::vector<Slice> slices_;
  Place value_landing_;
};

}  // namespace

Plan all_reduce_ring(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  const std::vector<Slice> slices = split_evenly(request.count, b.ranks());
  Ring ring(b, slices);
  const Place sums =
      request.accumulator == Accumulator::wide ? b.take_partial(request.count) : b.output(0);
  ring.reduce_scatter(sums, b.output(slices[static_cast<std::size_t>(rank)].begin));
  ring.all_gather();
  return b.done();
}

Plan reduce_scatter_ring(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  const std::vector<Slice> slices = split_by(request.counts);
  const Place sums = b.take_partial(slices.back().end);
  Ring(b, slices).reduce_scatter(sums, b.output(0));
  return b.done();
}

Plan all_gather_ring(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  const std::vector<Slice> slices = split_by(request.counts);
  const Slice mine = slices[static_cast<std::size_t>(rank)];
  b.copy(b.input(0), b.output(mine.begin), mine.count());
  Ring(b, slices).all_gather();
  return b.done();
}

}  // namespace lockstep::plan
