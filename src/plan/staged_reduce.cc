// Sums of buffers that peers cannot reach, through slots that they can, chunk by chunk: every rank
// copies what the others add into its slot, adds its own part of all slots, and stores the sums to
// where the values came from, so that everybody finds them in its own slot. Each value is copied
// once and each sum once, and a line of a slot goes to one other core and back.
//
// Regions of a slot are used in turn. The order of a rank's steps makes waiting for them
// unnecessary: before a rank writes a region again it has taken all sums out of it, and whoever
// stored one there has read what it needed (the checker proves that).
#include <fmt/format.h>

#include <algorithm>

#include "plan/builder.h"
#include "plan/makers.h"
#include "plan/staging.h"

namespace lockstep::plan {
namespace {

/// As many as the order of steps needs.
constexpr std::uint64_t kRegions = Staging::kRegions;
/// A stage is a number of 16 bits.
constexpr std::uint64_t kMostStages = 30'000;  // chunks
/// A plan has some instructions for each chunk and rank. With more ranks than a machine has cores
/// they wait for each other, so that chunks gain little; plans are kept below 1 MiB then.
constexpr std::uint64_t kMostSteps = 64 << 10;
constexpr int kManyRanks = 64;
constexpr std::uint64_t kMostStepsOfMany = 4 << 10;

class Staged {
 public:
  explicit Staged(Builder& b)
      : b_(b),
        all_{0, b.request().count},
        chunk_(chunk_length(b.request(), b.layout())),
        chunks_(chunks_in(all_, chunk_)),
        parts_(split_evenly(chunk_, b.ranks())),
        last_parts_(split_evenly(chunk(chunks_ - 1).count(), b.ranks())) {}

  Plan run() {
    const Request& request = b_.request();
    b_.take_slot(slot_elements(request, b_.layout(), b_.layout().replicas(b_.rank())),
                 staged_slot_elements(request, b_.layout()));
    for (std::uint64_t i = 0; i < chunks_ + 2; ++i) {
      if (i < chunks_) stage(i);
      if (i >= 1 && i - 1 < chunks_) add_part(i - 1);
      if (i >= 2) collect(i - 2);
    }
    return b_.done();
  }

  /// Of a rank with so many replicas.
  static std::uint64_t slot_elements(const Request& request, const Layout& layout, int replicas) {
    const std::uint64_t chunk = chunk_length(request, layout);
    const std::uint64_t regions = std::min(kRegions, chunks_in({0, request.count}, chunk));
    return regions * chunk * static_cast<std::uint64_t>(replicas);
  }

  /// What a rank stages of a chunk, for all its replicas, is as long as a chunk of other plans.
  static std::uint64_t chunk_length(const Request& request, const Layout& layout) {
    const auto rows = static_cast<std::uint64_t>(layout.most_replicas());
    return std::clamp<std::uint64_t>(request.staged() / rows, 1, request.count);
  }

 private:
  static std::uint32_t staged(std::uint64_t j) { return static_cast<std::uint32_t>(2 * j + 1); }
  static std::uint32_t summed(std::uint64_t j) { return static_cast<std::uint32_t>(2 * j + 4); }

  [[nodiscard]] Slice chunk(std::uint64_t j) const { return chunk_of(all_, chunk_, j); }
  /// What a rank adds of chunk j; nothing, maybe: a small chunk is not divided among all.
  [[nodiscard]] Slice part(std::uint64_t j, int rank) const {
    return (j + 1 < chunks_ ? parts_ : last_parts_)[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] Place region(int rank, std::uint64_t replica, std::uint64_t j) const {
    const std::uint64_t regions = std::min(kRegions, chunks_);
    return Builder::slot_of(rank, (replica * regions + j % regions) * chunk_);
  }

  /// Copies chunk j to where the others can read it, but for what only this rank adds.
  void stage(std::uint64_t j) {
    const std::vector<Piece> own = b_.leaf_pieces(b_.rank(), chunk(j).begin);
    const Slice mine = part(j, b_.rank());
    for (const Slice others : {Slice{0, mine.begin}, Slice{mine.end, chunk(j).count()}}) {
      for (std::size_t i = 0; i < own.size(); ++i) {
        b_.copy(shifted(own[i].place, others.begin), shifted(region(b_.rank(), i, j), others.begin),
                others.count());
      }
    }
    b_.publish(staged(j));
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

  /// Adds this rank's part of chunk j, into its output and into everybody's slot.
  void add_part(std::uint64_t j) {
    const Slice mine = part(j, b_.rank());
    if (mine.count() == 0) return;
    b_.await_others(staged(j));
    std::vector<Place> targets{b_.output(chunk(j).begin + mine.begin)};
    for (int step = 1; step < b_.ranks(); ++step) {
      targets.push_back(shifted(region(b_.neighbour(step), 0, j), mine.begin));
    }
    b_.reduce(pieces(j, mine.begin), targets, mine.count(), Finish::yes);
    b_.publish(summed(j));
  }

  /// Takes the others' sums of chunk j out of the own slot.
  void collect(std::uint64_t j) {
    for (int step = 1; step < b_.ranks(); ++step) {
      const int peer = b_.neighbour(step);
      const Slice theirs = part(j, peer);
      if (theirs.count() == 0) continue;
      b_.await(peer, summed(j));
      b_.copy(shifted(region(b_.rank(), 0, j), theirs.begin),
              b_.output(chunk(j).begin + theirs.begin), theirs.count());
    }
  }

  Builder& b_;
  Slice all_;
  std::uint64_t chunk_;
  std::uint64_t chunks_;
  std::vector<Slice> parts_;       // by rank, of a whole chunk
  std::vector<Slice> last_parts_;  // of the last chunk, which may be shorter
};

}  // namespace

std::string refuses_staged(const Request& request, const Layout& layout) {
  if (layout.ranks() == 1) return "there is only one rank";
  if (request.count == 0) return {};
  const std::uint64_t chunk = Staged::chunk_length(request, layout);
  if (request.count / chunk > kMostStages) {
    return fmt::format("{} elements are more than {} chunks of {}", request.count, kMostStages,
                       chunk);
  }
  const std::uint64_t steps =
      (request.count / chunk + 1) * static_cast<std::uint64_t>(layout.ranks());
  const std::uint64_t most = layout.ranks() > kManyRanks ? kMostStepsOfMany : kMostSteps;
  if (steps > most) {
    return fmt::format("{} ranks would take {} steps for {} chunks, more than {}", layout.ranks(),
                       steps, request.count / chunk + 1, most);
  }
  return {};
}

std::uint64_t staged_slot_elements(const Request& request, const Layout& layout) {
  return request.count == 0 ? 0 : Staged::slot_elements(request, layout, layout.most_replicas());
}

Plan all_reduce_staged(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  if (request.count == 0) return b.done();
  return Staged(b).run();
}

}  // namespace lockstep::plan
