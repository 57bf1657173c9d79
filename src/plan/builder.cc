#include "plan/builder.h"

#include <algorithm>
#include <cassert>

#include "plan/algorithm.h"
#include "plan/form.h"

namespace lockstep::plan {
namespace {

// Elements per cache line of four-byte elements: ranks that write neighbouring slices of one buffer
// then share no line.
constexpr std::uint64_t kLine = 16;

std::uint64_t round_up(std::uint64_t count) { return (count + kLine - 1) / kLine * kLine; }

}  // namespace

std::vector<Slice> split_evenly(std::uint64_t count, int parts) {
  const auto n = static_cast<std::uint64_t>(parts);
  const std::uint64_t unit = count >= kLine * n ? kLine : 1;
  const std::uint64_t units = (count + unit - 1) / unit;
  std::vector<Slice> slices(n);
  for (std::uint64_t i = 0; i < n; ++i) {
    // units / n * i + ... instead of units * i / n: no overflow for any count.
    const auto edge = [&](std::uint64_t k) {
      return std::min(count, (units / n * k + units % n * k / n) * unit);
    };
    slices[i] = {edge(i), edge(i + 1)};
  }
  return slices;
}

std::vector<Slice> split_by(std::span<const std::uint64_t> counts) {
  std::vector<Slice> slices;
  slices.reserve(counts.size());
  std::uint64_t begin = 0;
  for (const std::uint64_t count : counts) {
    slices.push_back({begin, begin + count});
    begin += count;
  }
  return slices;
}

Slice chunk_of(Slice slice, std::uint64_t chunk, std::uint64_t j) noexcept {
  const std::uint64_t begin = j * chunk;
  if (begin >= slice.count()) return {slice.end, slice.end};
  return {slice.begin + begin, slice.begin + std::min(slice.count(), begin + chunk)};
}

std::uint64_t chunk_length(const Request& request) {
  const std::uint64_t least = element_count(request) / kMostChunks;
  return std::max<std::uint64_t>({request.chunk, least > 0 ? round_up(least + 1) : 1, 1});
}

std::uint64_t chunks_in(Slice slice, std::uint64_t chunk) noexcept {
  return slice.count() / chunk + (slice.count() % chunk != 0 ? 1 : 0);
}

Builder::Builder(const Request& request, const Layout& layout, int rank)
    : request_(request), layout_(layout), rank_(rank), chunk_(chunk_length(request)) {}

int Builder::neighbour(int steps) const noexcept {
  const int n = ranks();
  return ((rank_ + steps) % n + n) % n;
}

Node Builder::leaves_of(int rank) const noexcept {
  return {layout_.first(rank), layout_.first(rank + 1)};
}

Place Builder::input_of(int rank, int replica, std::uint64_t offset) noexcept {
  return {.rank = rank, .buffer = Buffer::input, .index = replica, .offset = offset};
}
Place Builder::output_of(int rank, std::uint64_t offset) noexcept {
  return {.rank = rank, .buffer = Buffer::output, .index = 0, .offset = offset};
}
Place Builder::slot_of(int rank, std::uint64_t offset) noexcept {
  return {.rank = rank, .buffer = Buffer::slot, .index = 0, .offset = offset};
}

Place Builder::take_scratch(std::uint64_t count) {
  const Place place{.rank = rank_,
                    .buffer = Buffer::scratch,
                    .index = 0,
                    .offset = round_up(plan_.scratch_count)};
  if (count > 0) plan_.scratch_count = place.offset + count;
  return place;
}

Place Builder::take_partial(std::uint64_t count) {
  const Place place{.rank = rank_,
                    .buffer = Buffer::partial,
                    .index = 0,
                    .offset = round_up(plan_.partial_count)};
  if (count > 0) plan_.partial_count = place.offset + count;
  return place;
}

Place Builder::take_for(Node node, std::uint64_t count) {
  return node.size() == 1 ? take_scratch(count) : take_partial(count);
}

void Builder::take_slot(std::uint64_t count, std::uint64_t most) {
  plan_.slot_count = count;
  plan_.slot_most = most;
}

std::vector<Piece> Builder::leaf_pieces(int rank, std::uint64_t offset) const {
  std::vector<Piece> pieces;
  const Node leaves = leaves_of(rank);
  pieces.reserve(static_cast<std::size_t>(leaves.size()));
  for (int leaf = leaves.lo; leaf < leaves.hi; ++leaf) {
    pieces.push_back({{leaf, leaf + 1}, input_of(rank, leaf - leaves.lo, offset)});
  }
  return pieces;
}

void Builder::send(int peer, Place from, std::uint64_t count) {
  if (count == 0) return;
  plan_.code.push_back({.verb = Verb::send,
                        .peer = peer,
                        .count = count,
                        .sources = add_places({&from, 1}),
                        .source_count = 1});
}

void Builder::receive(int peer, Place into, std::uint64_t count) {
  if (count == 0) return;
  plan_.code.push_back({.verb = Verb::receive,
                        .peer = peer,
                        .count = count,
                        .targets = add_places({&into, 1}),
                        .target_count = 1});
}

void Builder::drain(int peer) { plan_.code.push_back({.verb = Verb::drain, .peer = peer}); }

void Builder::publish(std::uint32_t stage) {
  plan_.code.push_back({.verb = Verb::publish, .stage = stage});
}

void Builder::await(int peer, std::uint32_t stage) {
  plan_.code.push_back({.verb = Verb::await, .peer = peer, .stage = stage});
}

void Builder::await_others(std::uint32_t stage) {
  for (int i = 1; i < ranks(); ++i) await(neighbour(i), stage);
}

void Builder::copy(Place from, Place to, std::uint64_t count) {
  if (count == 0) return;
  const std::uint32_t sources = add_places({&from, 1});
  plan_.code.push_back({.verb = Verb::copy,
                        .count = count,
                        .sources = sources,
                        .source_count = 1,
                        .targets = add_places({&to, 1}),
                        .target_count = 1});
}

void Builder::reduce(std::span<const Piece> pieces, std::span<const Place> targets,
                     std::uint64_t count, Finish finish) {
  if (count == 0) return;
  std::vector<Place> sources;
  std::vector<Node> nodes;
  sources.reserve(pieces.size());
  nodes.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    sources.push_back(piece.place);
    nodes.push_back(piece.node);
  }
  reduce(sources, merges(nodes), targets, count, finish);
}

void Builder::reduce(std::span<const Place> sources, std::span<const std::uint8_t> program,
                     std::span<const Place> targets, std::uint64_t count, Finish finish) {
  if (count == 0) return;
  assert(sources.size() == program.size());
  const std::uint32_t first_source = add_places(sources);
  const std::uint32_t first_target = add_places(targets);
  plan_.code.push_back({.verb = Verb::reduce,
                        .finish = finish == Finish::yes,
                        .count = count,
                        .sources = first_source,
                        .source_count = static_cast<std::uint32_t>(sources.size()),
                        .targets = first_target,
                        .target_count = static_cast<std::uint32_t>(targets.size()),
                        .merges = add_merges(program)});
}

std::uint32_t Builder::add_places(std::span<const Place> places) {
  const auto first = static_cast<std::uint32_t>(plan_.places.size());
  plan_.places.insert(plan_.places.end(), places.begin(), places.end());
  return first;
}

std::uint32_t Builder::add_merges(std::span<const std::uint8_t> program) {
  // Pipelines repeat one program for every chunk: keep it once.
  auto& all = plan_.merges;
  if (all.size() >= program.size() &&
      std::equal(program.begin(), program.end(),
                 all.end() - static_cast<std::ptrdiff_t>(program.size()))) {
    return static_cast<std::uint32_t>(all.size() - program.size());
  }
  const auto first = static_cast<std::uint32_t>(all.size());
  all.insert(all.end(), program.begin(), program.end());
  return first;
}

}  // namespace lockstep::plan
