// Gather and scatter along a binomial tree: a rank moves the parts of the ranks below it as one
// message, so that no rank has more than log2(n) + 1 peers. Positions count from the root around
// the ring of ranks; below a position are those from it to the next sibling's.
#include "plan/tree_move.h"

#include <algorithm>

#include "plan/binomial.h"
#include "plan/makers.h"

namespace lockstep::plan {
namespace {

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

}  // namespace

TreeMove::TreeMove(Builder& b, std::span<const std::uint64_t> counts, int root)
    : b_(b), root_(root), position_((b.rank() - root + b.ranks()) % b.ranks()) {
  const std::vector<Slice> slices = split_by(counts);
  begins_.reserve(slices.size());
  std::uint64_t begin = 0;
  for (int position = 0; position < b_.ranks(); ++position) {
    begins_.push_back(begin);
    begin += slices[at(rank_at(position))].count();
  }
  begins_.push_back(begin);
  root_part_ = slices[at(root)].begin;
}

int TreeMove::end_of(int position) const {
  const int below = position == 0 ? b_.ranks() : position & -position;
  return std::min(b_.ranks(), position + below);
}

void TreeMove::gather() {
  if (position_ == 0) {
    b_.copy(b_.input(0), b_.output(root_part_), begins_[1]);
    for (const int child : binomial_children(0, b_.ranks())) {
      each_message(child, [&](Slice part) {
        b_.receive(rank_at(child), b_.output(in_rank_order(part.begin)), part.count());
      });
    }
    return;
  }
  const int parent = rank_at(binomial_parent(position_));
  const std::uint64_t first = begins_[at(position_)];
  const std::uint64_t own = begins_[at(position_) + 1] - first;
  const std::vector<int> children = binomial_children(position_, b_.ranks());
  Place all = b_.input(0);
  if (!children.empty()) {
    all = b_.take_scratch(begins_[at(end_of(position_))] - first);
    b_.copy(b_.input(0), all, own);
  }
  for (const int child : children) {
    each_message(child, [&](Slice part) {
      b_.receive(rank_at(child), shifted(all, part.begin - first), part.count());
    });
  }
  each_message(position_, [&](Slice part) {
    b_.send(parent, shifted(all, part.begin - first), part.count());
  });
}

void TreeMove::scatter(Place from) {
  const std::vector<int> children = binomial_children(position_, b_.ranks());
  const std::uint64_t first = begins_[at(position_)];
  const std::uint64_t own = begins_[at(position_) + 1] - first;
  Place all = b_.output(0);
  if (position_ != 0) {
    if (!children.empty()) all = b_.take_scratch(begins_[at(end_of(position_))] - first);
    each_message(position_, [&](Slice part) {
      b_.receive(rank_at(binomial_parent(position_)), shifted(all, part.begin - first),
                 part.count());
    });
  }
  for (const int child : children) {
    each_message(child, [&](Slice part) {
      b_.send(rank_at(child),
              position_ == 0 ? shifted(from, in_rank_order(part.begin))
                             : shifted(all, part.begin - first),
              part.count());
    });
  }
  if (position_ == 0) {
    b_.copy(shifted(from, root_part_), b_.output(0), own);
  } else if (!children.empty()) {
    b_.copy(all, b_.output(0), own);
  }
}

std::uint64_t TreeMove::in_rank_order(std::uint64_t element) const {
  const std::uint64_t total = begins_.back();
  const std::uint64_t tail = total - root_part_;  // elements of the ranks from the root on
  return element < tail ? element + root_part_ : element - tail;
}

template <class Body>
void TreeMove::each_message(int position, Body body) const {
  const Slice all{begins_[at(position)], begins_[at(end_of(position))]};
  const std::uint64_t tail = begins_.back() - root_part_;
  const std::uint64_t cut = std::clamp(tail, all.begin, all.end);
  body(Slice{all.begin, cut});
  body(Slice{cut, all.end});
}

Plan gather_tree(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  TreeMove(b, request.counts, request.root).gather();
  return b.done();
}

Plan scatter_tree(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  TreeMove(b, request.counts, request.root).scatter(b.input(0));
  return b.done();
}

}  // namespace lockstep::plan
