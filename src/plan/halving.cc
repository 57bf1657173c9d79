// Recursive halving and doubling (Rabenseifner's all-reduce) along the fixed tree, for every number
// of ranks. Below a node some ranks, a power of two, hold slices of its sum that tile the vector.
// Where both children have equally many holders, partners swap halves of their common slice and the
// number of holders doubles; else the side with fewer holders sends its slices to the other side's
// holders of them. After the root the same steps are undone, with results. Each rank sends and
// receives about twice the vector, in 2 log2(n) rounds.
//
// A reduce-scatter cuts the vector between the parts of ranks. After the root each holder has whole
// parts, which it sends to the ranks they belong to.
#include <algorithm>
#include <map>

#include "plan/builder.h"
#include "plan/makers.h"

namespace lockstep::plan {
namespace {

/// A rank and the slice it holds: of a reduce-scatter, parts [first, last).
struct Holder {
  int rank;
  Slice slice;
  std::size_t first = 0;
  std::size_t last = 0;
};

/// Where a slice is cut in two: the same for every rank, at a cache line if it is long.
std::uint64_t middle(Slice slice) {
  const std::uint64_t half = slice.count() / 2;
  return slice.begin + (half >= 16 ? half / 16 * 16 : half);
}

class Halving {
 public:
  /// parts[r] is rank r's part of the result; none: every rank has all of it.
  Halving(Builder& b, std::uint64_t count, std::vector<Slice> parts)
      : b_(b), count_(count), parts_(std::move(parts)) {}

  void run() {
    const std::vector<Piece> leaves = b_.leaf_pieces(b_.rank(), 0);
    if (b_.ranks() == 1) {
      b_.reduce(leaves, b_.output(0), count_, Finish::yes);
      return;
    }
    const bool in_output = parts_.empty() && b_.request().accumulator == Accumulator::same;
    sums_ = in_output ? b_.output(0) : b_.take_partial(count_);
    value_ = {b_.leaves_of(b_.rank()), leaves.front().place};
    if (leaves.size() > 1) {
      b_.reduce(leaves, sums_, count_, Finish::no);
      value_.place = sums_;
    }
    const std::vector<Holder> holders = holders_of(b_.root_node());
    if (!parts_.empty()) return deliver(holders);
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) undo(*step);
  }

 private:
  /// What this rank did with a peer at a node.
  struct Step {
    int peer;
    Slice sent;
    Slice kept;  // received and added
  };

  /// The holders of a node's sum, in the order of their slices; emits this rank's part on the way.
  std::vector<Holder> holders_of(Node node) {
    const Layout& layout = b_.layout();
    if (layout.rank_of(node.lo) == layout.rank_of(node.hi - 1)) {
      return {{layout.rank_of(node.lo), {0, count_}, 0, parts_.size()}};
    }
    const std::vector<Holder> low = holders_of(left(node));
    const std::vector<Holder> high = holders_of(right(node));
    const std::size_t first_step = steps_.size();
    std::vector<Holder> merged = low.size() == high.size()  ? swap_halves(low, high)
                                 : low.size() > high.size() ? hand_over(high, low)
                                                            : hand_over(low, high);
    exchange(node, std::span(steps_).subspan(first_step));
    return merged;
  }

  std::vector<Holder> swap_halves(const std::vector<Holder>& low, const std::vector<Holder>& high) {
    std::vector<Holder> merged;
    for (std::size_t i = 0; i < low.size(); ++i) {
      const Slice slice = low[i].slice;
      const std::size_t part = (low[i].first + low[i].last) / 2;
      const std::uint64_t cut = parts_.empty() ? middle(slice) : parts_[part].begin;
      const Slice first{slice.begin, cut};
      const Slice second{cut, slice.end};
      merged.push_back({low[i].rank, first, low[i].first, part});
      merged.push_back({high[i].rank, second, part, low[i].last});
      if (b_.rank() == low[i].rank) steps_.push_back({high[i].rank, second, first});
      if (b_.rank() == high[i].rank) steps_.push_back({low[i].rank, first, second});
    }
    return merged;
  }

  /// Slices of fewer holders are unions of those of more holders.
  std::vector<Holder> hand_over(const std::vector<Holder>& few, const std::vector<Holder>& many) {
    const std::size_t each = many.size() / few.size();
    for (std::size_t i = 0; i < many.size(); ++i) {
      const int giver = few[i / each].rank;
      if (b_.rank() == giver) steps_.push_back({many[i].rank, many[i].slice, {}});
      if (b_.rank() == many[i].rank) steps_.push_back({giver, {}, many[i].slice});
    }
    return many;
  }

  void exchange(Node node, std::span<const Step> steps) {
    for (const Step& step : steps) {
      each_chunk(step.sent, [&](Slice part) {
        b_.send(step.peer, shifted(value_.place, part.begin), part.count());
      });
    }
    for (const Step& step : steps) add(node, step);
  }

  /// Receives the peer's sum of the kept slice chunk by chunk and adds it to this rank's.
  void add(Node node, const Step& step) {
    if (step.kept.count() == 0) return;
    const bool on_left = b_.layout().first(b_.rank()) < split(node);
    const Piece theirs{on_left ? right(node) : left(node),
                       landing(on_left ? right(node) : left(node))};
    const Finish finish = node == b_.root_node() ? Finish::yes : Finish::no;
    const auto combine = [&](Slice slice, std::uint64_t landed, Place target) {
      const Piece mine{value_.node, shifted(value_.place, slice.begin)};
      const Piece heard{theirs.node, shifted(theirs.place, slice.begin - landed)};
      const Piece both[] = {on_left ? mine : heard, on_left ? heard : mine};
      b_.reduce(both, target, slice.count(), finish);
    };
    each_chunk(step.kept, [&](Slice slice) {
      b_.receive(step.peer, theirs.place, slice.count());
      if (finish == Finish::no || parts_.empty()) {
        combine(slice, slice.begin,
                shifted(finish == Finish::yes ? b_.output(0) : sums_, slice.begin));
        return;
      }
      for (std::size_t owner = 0; owner < parts_.size(); ++owner) {
        const Slice common{std::max(slice.begin, parts_[owner].begin),
                           std::min(slice.end, parts_[owner].end)};
        if (common.begin >= common.end) continue;
        combine(common, slice.begin, shifted(result(owner), common.begin - parts_[owner].begin));
      }
    });
    value_ = {node, sums_};
  }

  /// Where this rank finishes the part of a rank: what is not its own lies in scratch.
  Place result(std::size_t owner) {
    if (owner == static_cast<std::size_t>(b_.rank())) return b_.output(0);
    const auto known = finished_.find(owner);
    if (known != finished_.end()) return known->second;
    return finished_.emplace(owner, b_.take_scratch(parts_[owner].count())).first->second;
  }

  /// Each part to the rank it belongs to.
  void deliver(const std::vector<Holder>& holders) {
    for (const Holder& holder : holders) {
      for (std::size_t owner = holder.first; owner < holder.last; ++owner) {
        const int to = static_cast<int>(owner);
        const std::uint64_t count = parts_[owner].count();
        if (to == holder.rank || count == 0) continue;
        if (holder.rank == b_.rank()) b_.send(to, result(owner), count);
        if (to == b_.rank()) b_.receive(holder.rank, b_.output(0), count);
      }
    }
  }

  void undo(const Step& step) {
    each_chunk(step.kept,
               [&](Slice part) { b_.send(step.peer, b_.output(part.begin), part.count()); });
    each_chunk(step.sent,
               [&](Slice part) { b_.receive(step.peer, b_.output(part.begin), part.count()); });
  }

  template <class Body>
  void each_chunk(Slice slice, Body body) const {
    for (std::uint64_t j = 0; j < chunks_in(slice, b_.chunk()); ++j) {
      body(chunk_of(slice, b_.chunk(), j));
    }
  }

  Place landing(Node node) {
    const std::size_t form = node.size() > 1 ? 1 : 0;
    if (!taken_[form]) {
      landings_[form] = b_.take_for(node, std::min(b_.chunk(), count_));
      taken_[form] = true;
    }
    return landings_[form];
  }

  Builder& b_;
  std::uint64_t count_;
  std::vector<Slice> parts_;
  std::map<std::size_t, Place> finished_;  // parts of other ranks, in scratch
  Place sums_;                             // where this rank adds
  Piece value_;                            // its sum so far, as if it held the whole vector
  std::vector<Step> steps_;
  Place landings_[2];
  bool taken_[2] = {};
};

}  // namespace

Plan all_reduce_halving(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  if (request.count > 0) Halving(b, request.count, {}).run();
  return b.done();
}

Plan reduce_scatter_halving(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  std::vector<Slice> parts = split_by(request.counts);
  const std::uint64_t count = parts.back().end;
  if (count > 0) Halving(b, count, std::move(parts)).run();
  return b.done();
}

}  // namespace lockstep::plan
