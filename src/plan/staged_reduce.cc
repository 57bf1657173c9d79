// Sums of buffers that peers cannot reach, through slots that they can: chunk by chunk, every rank
// copies what it has into its slot and the others add from there. No message is received into
// memory first, so each value is copied once.
//
// Regions of a slot are used in turn. The order of a rank's steps makes waiting for them
// unnecessary: what a rank has seen of its peers before it writes a region again implies that they
// have read it (the checker proves that).
#include <fmt/format.h>

#include <algorithm>

#include "plan/builder.h"
#include "plan/makers.h"

namespace lockstep::plan {
namespace {

constexpr std::uint64_t kRegions = 4;
/// A stage is a number of 16 bits.
constexpr std::uint64_t kMostChunks = 30'000;
/// With so few ranks each adds everything: it has half of it at hand.
constexpr int kFewRanks = 2;

class Staged {
 public:
  explicit Staged(Builder& b)
      : b_(b),
        all_{0, b.request().count},
        longest_(std::min(b.chunk(), b.request().count)),
        chunks_(chunks_in(all_, b.chunk())) {}

  Plan run() {
    b_.take_slot(slot_elements(b_.request(), b_.layout(), b_.rank()));
    if (b_.ranks() <= kFewRanks) {
      each_adds_all();
    } else {
      each_adds_its_part();
    }
    return b_.done();
  }

  static std::uint64_t slot_elements(const Request& request, const Layout& layout, int rank) {
    const std::uint64_t chunk = std::min(std::max<std::uint64_t>(request.chunk, 1), request.count);
    const std::uint64_t results = layout.ranks() <= kFewRanks ? 0 : 1;
    return kRegions * chunk * (static_cast<std::uint64_t>(layout.replicas(rank)) + results);
  }

 private:
  [[nodiscard]] Slice chunk(std::uint64_t j) const { return chunk_of(all_, b_.chunk(), j); }
  [[nodiscard]] Place region(int rank, std::uint64_t replica, std::uint64_t j) const {
    return Builder::slot_of(rank, (replica * kRegions + j % kRegions) * longest_);
  }
  /// Where the sums of a rank's part of chunk j lie.
  [[nodiscard]] Place result(int rank, std::uint64_t j) const {
    return region(rank, static_cast<std::uint64_t>(b_.layout().replicas(rank)), j);
  }

  /// Copies chunk j to where the others can read it, but for what only this rank adds.
  void stage(std::uint64_t j, Slice own_part, std::uint32_t number) {
    if (j >= chunks_) return;
    const std::vector<Piece> own = b_.leaf_pieces(b_.rank(), chunk(j).begin);
    for (const Slice part : {Slice{0, own_part.begin}, Slice{own_part.end, chunk(j).count()}}) {
      for (std::size_t i = 0; i < own.size(); ++i) {
        b_.copy(shifted(own[i].place, part.begin), shifted(region(b_.rank(), i, j), part.begin),
                part.count());
      }
    }
    b_.publish(number);
  }

  /// All replicas' values of chunk j, `offset` elements into it: own ones where they lie.
  [[nodiscard]] std::vector<Piece> pieces(std::uint64_t j, std::uint64_t offset) const {
    std::vector<Piece> all;
    for (int rank = 0; rank < b_.ranks(); ++rank) {
      std::vector<Piece> here = b_.leaf_pieces(rank, chunk(j).begin + offset);
      for (std::size_t i = 0; rank != b_.rank() && i < here.size(); ++i) {
        here[i].place = shifted(region(rank, i, j), offset);
      }
      all.insert(all.end(), here.begin(), here.end());
    }
    return all;
  }

  void each_adds_all() {
    const auto number = [](std::uint64_t j) { return static_cast<std::uint32_t>(j + 1); };
    for (std::uint64_t i = 0; i < chunks_ + 1; ++i) {
      stage(i, Slice{}, number(i));
      if (i < 1) continue;
      const std::uint64_t j = i - 1;
      b_.await_others(number(j));
      b_.reduce(pieces(j, 0), b_.output(chunk(j).begin), chunk(j).count(), Finish::yes);
    }
  }

  void each_adds_its_part() {
    const auto staged = [](std::uint64_t j) { return static_cast<std::uint32_t>(2 * j + 1); };
    const auto summed = [](std::uint64_t j) { return static_cast<std::uint32_t>(2 * j + 4); };
    for (std::uint64_t i = 0; i < chunks_ + 2; ++i) {
      stage(i, part(i, b_.rank()), staged(i));
      if (i >= 1) add_part(i - 1, staged(i - 1), summed(i - 1));
      if (i >= 2) collect(i - 2, summed(i - 2));
    }
  }

  /// Adds this rank's part of chunk j, if it has one: a small chunk is not divided among all.
  void add_part(std::uint64_t j, std::uint32_t staged, std::uint32_t summed) {
    if (j >= chunks_) return;
    const Slice mine = part(j, b_.rank());
    if (mine.count() == 0) return;
    b_.await_others(staged);
    const Place targets[] = {b_.output(chunk(j).begin + mine.begin),
                             shifted(result(b_.rank(), j), mine.begin)};
    b_.reduce(pieces(j, mine.begin), targets, mine.count(), Finish::yes);
    b_.publish(summed);
  }

  void collect(std::uint64_t j, std::uint32_t number) {
    for (int step = 1; step < b_.ranks(); ++step) {
      const int peer = b_.neighbour(step);
      const Slice theirs = part(j, peer);
      if (theirs.count() == 0) continue;
      b_.await(peer, number);
      b_.copy(shifted(result(peer, j), theirs.begin), b_.output(chunk(j).begin + theirs.begin),
              theirs.count());
    }
  }

  [[nodiscard]] Slice part(std::uint64_t j, int rank) const {
    return split_evenly(chunk(j).count(), b_.ranks())[static_cast<std::size_t>(rank)];
  }

  Builder& b_;
  Slice all_;
  std::uint64_t longest_;
  std::uint64_t chunks_;
};

}  // namespace

std::string refuses_staged(const Request& request, const Layout& layout) {
  if (layout.ranks() == 1) return "there is only one rank";
  const std::uint64_t chunk = std::max<std::uint64_t>(request.chunk, 1);
  if (request.count / chunk > kMostChunks) {
    return fmt::format("{} elements are more than {} chunks of {}", request.count, kMostChunks,
                       chunk);
  }
  return {};
}

std::uint64_t staged_slot_elements(const Request& request, const Layout& layout) {
  std::uint64_t most = 0;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    most = std::max(most, Staged::slot_elements(request, layout, rank));
  }
  return most;
}

Plan all_reduce_staged(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  if (request.count == 0) return b.done();
  return Staged(b).run();
}

}  // namespace lockstep::plan
