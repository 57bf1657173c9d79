// Reductions that read peers' inputs in place: one pass over memory, no staging.
#include <fmt/format.h>

#include "plan/builder.h"
#include "plan/makers.h"

namespace lockstep::plan {
namespace {

std::vector<Piece> all_leaves(const Builder& b, std::uint64_t offset) {
  std::vector<Piece> pieces;
  pieces.reserve(static_cast<std::size_t>(b.layout().replicas()));
  for (int rank = 0; rank < b.ranks(); ++rank) {
    const std::vector<Piece> here = b.leaf_pieces(rank, offset);
    pieces.insert(pieces.end(), here.begin(), here.end());
  }
  return pieces;
}

/// Everybody is ready (stage 1); each rank reduces its slice into `targets`; everybody is done
/// (stage 2), so that inputs may change and outputs are complete.
Plan one_pass(Builder& b, Slice slice, std::span<const Place> targets) {
  const bool alone = b.ranks() == 1;
  if (!alone) {
    b.publish(1);
    b.await_others(1);
  }
  b.reduce(all_leaves(b, slice.begin), targets, slice.count(), Finish::yes);
  if (!alone) {
    b.publish(2);
    b.await_others(2);
  }
  return b.done();
}

}  // namespace

Plan all_reduce_one_pass(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  if (request.count == 0) return b.done();
  const Slice slice = split_evenly(request.count, b.ranks())[static_cast<std::size_t>(rank)];
  std::vector<Place> outputs;
  outputs.reserve(static_cast<std::size_t>(b.ranks()));
  // Own output first, then the neighbours': ranks write to different memory at any one time.
  for (int i = 0; i < b.ranks(); ++i) {
    outputs.push_back(Builder::output_of(b.neighbour(i), slice.begin));
  }
  return one_pass(b, slice, outputs);
}

Plan reduce_one_pass(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  if (request.count == 0) return b.done();
  const Slice slice = split_evenly(request.count, b.ranks())[static_cast<std::size_t>(rank)];
  const Place output = Builder::output_of(request.root, slice.begin);
  return one_pass(b, slice, {&output, 1});
}

Plan reduce_scatter_shared(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  const std::vector<Slice> slices = split_by(request.counts);
  if (slices.back().end == 0) return b.done();
  const Place output = b.output(0);
  return one_pass(b, slices[static_cast<std::size_t>(rank)], {&output, 1});
}

std::uint64_t slots_slot_elements(const Request& request, const Layout& layout) {
  return static_cast<std::uint64_t>(layout.most_replicas()) * request.count;
}

std::string refuses_slots(const Request& request, const Layout& layout) {
  const std::uint64_t needed = slots_slot_elements(request, layout);
  if (needed <= kSlotElements) return {};
  return fmt::format("a rank would stage {} elements at once, more than {}", needed, kSlotElements);
}

/// One synchronisation: inputs are copied to slots, so nobody need wait until the others have read
/// them. A slot is written again two operations later, when every rank has been seen in the
/// operation between, hence after its reads of this one.
Plan all_reduce_slots(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  const std::uint64_t count = request.count;
  if (count == 0) return b.done();
  std::vector<Piece> pieces;
  for (int peer = 0; peer < b.ranks(); ++peer) {
    std::vector<Piece> here = b.leaf_pieces(peer, 0);
    for (std::size_t i = 0; i < here.size(); ++i) {
      const Place slot = Builder::slot_of(peer, i * count);
      if (peer != rank) {
        here[i].place = slot;
      } else if (b.ranks() > 1) {
        b.copy(here[i].place, slot, count);
      }
    }
    pieces.insert(pieces.end(), here.begin(), here.end());
  }
  if (b.ranks() > 1) {
    b.take_slot(static_cast<std::uint64_t>(layout.replicas(rank)) * count,
                slots_slot_elements(request, layout));
    b.publish(1);
    b.await_others(1);
  }
  b.reduce(pieces, b.output(0), count, Finish::yes);
  return b.done();
}

}  // namespace lockstep::plan
