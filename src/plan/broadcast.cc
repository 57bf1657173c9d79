// Broadcasts by messages. Positions count from the root around the ring of ranks.
#include <algorithm>

#include "plan/binomial.h"
#include "plan/builder.h"
#include "plan/makers.h"

namespace lockstep::plan {
namespace {

int position_of(const Builder& b, int rank) {
  return (rank - b.request().root + b.ranks()) % b.ranks();
}
int rank_at(const Builder& b, int position) { return (b.request().root + position) % b.ranks(); }

}  // namespace

/// Down a binomial tree, chunk by chunk.
Plan broadcast_tree(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  const int position = position_of(b, rank);
  const std::vector<int> children = binomial_children(position, b.ranks());
  const Slice all{0, request.count};
  if (position == 0) b.copy(b.input(0), b.output(0), request.count);
  for (std::uint64_t j = 0; j < chunks_in(all, b.chunk()); ++j) {
    const Slice slice = chunk_of(all, b.chunk(), j);
    if (position != 0) {
      b.receive(rank_at(b, binomial_parent(position)), b.output(slice.begin), slice.count());
    }
    for (const int child : children) {
      b.send(rank_at(b, child), b.output(slice.begin), slice.count());
    }
  }
  return b.done();
}

/// Slices go down a binomial tree, each rank's with those of the ranks below it; then they travel
/// around the ring. The root sends twice the data once instead of all of it log2(n) times, and
/// every rank's link works. Nothing is sent to a rank that has it: the root has everything.
Plan broadcast_scatter_gather(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  const int n = b.ranks();
  const int position = position_of(b, rank);
  const std::vector<Slice> slices = split_evenly(request.count, n);
  const auto slice_at = [&](int index) { return slices[static_cast<std::size_t>(index)]; };
  const auto end_of = [&](int from) { return from == 0 ? n : std::min(n, from + (from & -from)); };
  const auto below = [&](int from) {
    return Slice{slice_at(from).begin, slice_at(end_of(from) - 1).end};
  };
  if (position == 0) {
    b.copy(b.input(0), b.output(0), request.count);
  } else {
    b.receive(rank_at(b, binomial_parent(position)), b.output(below(position).begin),
              below(position).count());
  }
  for (const int child : binomial_children(position, n)) {
    b.send(rank_at(b, child), b.output(below(child).begin), below(child).count());
  }
  const auto has = [&](int holder, int index) { return holder <= index && index < end_of(holder); };
  for (int step = 0; step < n - 1; ++step) {
    const int out = (position - step + n) % n;
    const int in = (position - step - 1 + n) % n;
    if (!has((position + 1) % n, out)) {
      b.send(b.neighbour(1), b.output(slice_at(out).begin), slice_at(out).count());
    }
    if (!has(position, in)) {
      b.receive(b.neighbour(-1), b.output(slice_at(in).begin), slice_at(in).count());
    }
  }
  return b.done();
}

}  // namespace lockstep::plan
