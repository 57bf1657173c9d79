// Collectives that only move data, by messages between each pair that has something to say.
#include "plan/builder.h"
#include "plan/makers.h"

namespace lockstep::plan {
namespace {

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

}  // namespace

Plan all_gather_direct(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  const std::vector<Slice> slices = split_by(request.counts);
  const Slice mine = slices[at(rank)];
  for (int i = 1; i < b.ranks(); ++i) b.send(b.neighbour(i), b.input(0), mine.count());
  b.copy(b.input(0), b.output(mine.begin), mine.count());
  for (int i = 1; i < b.ranks(); ++i) {
    const Slice theirs = slices[at(b.neighbour(-i))];
    b.receive(b.neighbour(-i), b.output(theirs.begin), theirs.count());
  }
  return b.done();
}

Plan gather_direct(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  const std::vector<Slice> slices = split_by(request.counts);
  if (rank != request.root) {
    b.send(request.root, b.input(0), slices[at(rank)].count());
    return b.done();
  }
  b.copy(b.input(0), b.output(slices[at(rank)].begin), slices[at(rank)].count());
  for (int i = 1; i < b.ranks(); ++i) {
    const Slice theirs = slices[at(b.neighbour(i))];
    b.receive(b.neighbour(i), b.output(theirs.begin), theirs.count());
  }
  return b.done();
}

Plan scatter_direct(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  const std::vector<Slice> slices = split_by(request.counts);
  if (rank != request.root) {
    b.receive(request.root, b.output(0), slices[at(rank)].count());
    return b.done();
  }
  for (int i = 1; i < b.ranks(); ++i) {
    const Slice theirs = slices[at(b.neighbour(i))];
    b.send(b.neighbour(i), b.input(theirs.begin), theirs.count());
  }
  b.copy(b.input(slices[at(rank)].begin), b.output(0), slices[at(rank)].count());
  return b.done();
}

/// In step i everybody sends to the i-th rank after it: each link carries one block at a time.
Plan all_to_all_direct(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  const std::uint64_t count = request.count;
  const auto block = [&](int peer) { return static_cast<std::uint64_t>(peer) * count; };
  b.copy(b.input(block(rank)), b.output(block(rank)), count);
  for (int i = 1; i < b.ranks(); ++i) {
    b.send(b.neighbour(i), b.input(block(b.neighbour(i))), count);
    b.receive(b.neighbour(-i), b.output(block(b.neighbour(-i))), count);
  }
  return b.done();
}

/// In round k each rank tells the one 2^k further what it knows; after log2(n) rounds everybody
/// knows of everybody. The element sent means nothing: a byte stream has no empty messages.
Plan barrier_dissemination(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  if (b.ranks() == 1) return b.done();
  const Place token = b.take_scratch(1);
  const Place seen = b.take_scratch(1);
  for (int distance = 1; distance < b.ranks(); distance *= 2) {
    b.send(b.neighbour(distance), token, 1);
    b.receive(b.neighbour(-distance), seen, 1);
  }
  return b.done();
}

/// The receiver answers with an element that means nothing: a send is over when the data is there.
Plan send_receive_direct(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  if (request.root == request.to) {
    if (rank == request.to) b.copy(b.input(0), b.output(0), request.count);
  } else if (rank == request.root) {
    b.send(request.to, b.input(0), request.count);
    b.receive(request.to, b.take_scratch(1), 1);
  } else if (rank == request.to) {
    b.receive(request.root, b.output(0), request.count);
    b.send(request.root, b.take_scratch(1), 1);
  }
  return b.done();
}

}  // namespace lockstep::plan
