// Collectives that only move data, over memory all ranks can reach. Who reads or writes a peer's
// buffer publishes when it is done, and the owner awaits that before it ends.
#include "plan/builder.h"
#include "plan/makers.h"

namespace lockstep::plan {
namespace {

/// The root's buffers are ready; every other rank does its part on them; the root sees them done.
template <class Part>
Plan around_root(Builder& b, Part part) {
  const int root = b.request().root;
  if (b.rank() == root) {
    if (b.ranks() > 1) b.publish(1);
    part();
    b.await_others(1);
  } else {
    b.await(root, 1);
    part();
    b.publish(1);
  }
  return b.done();
}

/// Each rank reads from every other, nearest neighbour first, so that no memory is everybody's
/// first choice.
template <class From>
Plan read_all(Builder& b, From from) {
  if (b.ranks() > 1) b.publish(1);
  from(b.rank());
  for (int i = 1; i < b.ranks(); ++i) {
    b.await(b.neighbour(i), 1);
    from(b.neighbour(i));
  }
  if (b.ranks() > 1) {
    b.publish(2);
    b.await_others(2);
  }
  return b.done();
}

}  // namespace

Plan broadcast_shared(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  if (request.count == 0) return b.done();
  return around_root(
      b, [&] { b.copy(Builder::input_of(request.root, 0, 0), b.output(0), request.count); });
}

Plan gather_shared(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  const std::vector<Slice> slices = split_by(request.counts);
  if (slices.back().end == 0) return b.done();
  const Slice mine = slices[static_cast<std::size_t>(rank)];
  return around_root(
      b, [&] { b.copy(b.input(0), Builder::output_of(request.root, mine.begin), mine.count()); });
}

Plan scatter_shared(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  const std::vector<Slice> slices = split_by(request.counts);
  if (slices.back().end == 0) return b.done();
  const Slice mine = slices[static_cast<std::size_t>(rank)];
  return around_root(b, [&] {
    b.copy(Builder::input_of(request.root, 0, mine.begin), b.output(0), mine.count());
  });
}

Plan all_gather_shared(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  const std::vector<Slice> slices = split_by(request.counts);
  if (slices.back().end == 0) return b.done();
  return read_all(b, [&](int peer) {
    const Slice theirs = slices[static_cast<std::size_t>(peer)];
    b.copy(Builder::input_of(peer, 0, 0), b.output(theirs.begin), theirs.count());
  });
}

Plan all_to_all_shared(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  const std::uint64_t count = request.count;
  if (count == 0) return b.done();
  return read_all(b, [&](int peer) {
    b.copy(Builder::input_of(peer, 0, static_cast<std::uint64_t>(rank) * count),
           b.output(static_cast<std::uint64_t>(peer) * count), count);
  });
}

Plan barrier_shared(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  if (b.ranks() > 1) {
    b.publish(1);
    b.await_others(1);
  }
  return b.done();
}

Plan send_receive_shared(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  const bool apart = request.root != request.to;
  if (apart && rank == request.root) {
    b.publish(1);
    b.await(request.to, 1);
  }
  if (rank == request.to) {
    if (apart) b.await(request.root, 1);
    b.copy(Builder::input_of(request.root, 0, 0), b.output(0), request.count);
    if (apart) b.publish(1);
  }
  return b.done();
}

}  // namespace lockstep::plan
