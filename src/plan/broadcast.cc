// Broadcasts by messages. Positions count from the root around the ring of ranks.
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

/// The root gives each rank one slice; then slices travel around the ring. The root sends twice the
/// data once instead of all of it log2(n) times, and every rank's link works. Nothing is sent to
/// the root: it has everything.
Plan broadcast_scatter_gather(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  const int n = b.ranks();
  const int position = position_of(b, rank);
  const std::vector<Slice> slices = split_evenly(request.count, n);
  const auto slice_at = [&](int index) {
    return slices[static_cast<std::size_t>((index + n) % n)];
  };
  if (position == 0) {
    b.copy(b.input(0), b.output(0), request.count);
    for (int i = 1; i < n; ++i) {
      b.send(rank_at(b, i), b.output(slice_at(i).begin), slice_at(i).count());
    }
  } else {
    b.receive(request.root, b.output(slice_at(position).begin), slice_at(position).count());
  }
  for (int step = 0; step < n - 1; ++step) {
    const Slice out = slice_at(position - step);
    const Slice in = slice_at(position - step - 1);
    if (position != n - 1) b.send(b.neighbour(1), b.output(out.begin), out.count());
    if (position != 0) b.receive(b.neighbour(-1), b.output(in.begin), in.count());
  }
  return b.done();
}

}  // namespace lockstep::plan
