// Two levels: the ranks of a host bring what they have to their first rank, the leader, which adds
// whole subtrees of the host's replicas; leaders exchange directly, each owning a part of every
// chunk; leaders hand the result to their ranks. Between hosts every value travels once per host
// instead of once per rank, and the sum is the fixed tree for every layout.
#include <fmt/format.h>

#include <algorithm>

#include "plan/builder.h"
#include "plan/makers.h"

namespace lockstep::plan {
namespace {

/// Ranks [first, end) of one host; `first` leads.
struct Host {
  int first;
  int end;
};

std::vector<Host> hosts_of(const Layout& layout) {
  std::vector<Host> hosts;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    if (rank == 0 || layout.host(rank) != layout.host(rank - 1)) hosts.push_back({rank, rank});
    hosts.back().end = rank + 1;
  }
  return hosts;
}

class Hierarchical {
 public:
  explicit Hierarchical(Builder& b) : b_(b), hosts_(hosts_of(b.layout())) {
    for (std::size_t h = 0; h < hosts_.size(); ++h) {
      const Node leaves{b_.layout().first(hosts_[h].first), b_.layout().first(hosts_[h].end)};
      forests_.push_back(forest(leaves, b_.layout().replicas()));
      if (hosts_[h].first <= b_.rank() && b_.rank() < hosts_[h].end) mine_ = h;
    }
    longest_ = std::min(b_.chunk(), b_.request().count);
  }

  void run() {
    if (b_.rank() == hosts_[mine_].first) {
      lead();
    } else {
      follow();
    }
  }

 private:
  [[nodiscard]] std::uint64_t chunks() const {
    return chunks_in({0, b_.request().count}, b_.chunk());
  }
  [[nodiscard]] Slice chunk(std::uint64_t j) const {
    return chunk_of({0, b_.request().count}, b_.chunk(), j);
  }
  [[nodiscard]] std::vector<Node> forest_of(int rank) const {
    return forest(b_.leaves_of(rank), b_.layout().replicas());
  }

  /// Sends the next chunk before it receives the result of this one; with that result the leader
  /// has also received the pieces of that chunk, so their bank is free.
  void follow() {
    const int leader = hosts_[mine_].first;
    const std::vector<Node> pieces = forest_of(b_.rank());
    std::vector<Place> staged[2];
    for (auto& bank : staged) {
      for (const Node node : pieces)
        bank.push_back(node.size() > 1 ? b_.take_partial(longest_) : Place{});
    }
    const auto give = [&](std::uint64_t j) {
      if (j >= chunks()) return;
      const std::vector<Piece> leaves = b_.leaf_pieces(b_.rank(), chunk(j).begin);
      std::size_t next = 0;
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        const auto own =
            std::span(leaves).subspan(next, static_cast<std::size_t>(pieces[i].size()));
        next += own.size();
        Place place = own.front().place;
        if (own.size() > 1) {
          place = staged[j % 2][i];
          b_.reduce(own, place, chunk(j).count(), Finish::no);
        }
        b_.send(leader, place, chunk(j).count());
      }
    };
    give(0);
    for (std::uint64_t j = 0; j < chunks(); ++j) {
      give(j + 1);
      b_.receive(leader, b_.output(chunk(j).begin), chunk(j).count());
    }
  }

  void lead() {
    take_regions();
    for (std::uint64_t j = 0; j < chunks(); ++j) {
      const Slice slice = chunk(j);
      const std::vector<Piece> pieces = collect(slice);
      exchange(slice, pieces);
      for (int rank = hosts_[mine_].first + 1; rank < hosts_[mine_].end; ++rank) {
        b_.send(rank, b_.output(slice.begin), slice.count());
      }
    }
  }

  void take_regions() {
    for (int rank = hosts_[mine_].first + 1; rank < hosts_[mine_].end; ++rank) {
      for (const Node node : forest_of(rank)) {
        from_ranks_.push_back({node, b_.take_for(node, longest_)});
      }
    }
    for (const Node node : forests_[mine_]) {
      sums_.push_back(node.size() > 1 ? b_.take_partial(longest_) : Place{});
    }
    for (std::size_t h = 0; h < hosts_.size(); ++h) {
      from_hosts_.emplace_back();
      if (h == mine_) continue;
      for (const Node node : forests_[h]) {
        from_hosts_.back().push_back({node, b_.take_for(node, longest_)});
      }
    }
  }

  /// The host's subtrees for one chunk. Single leaves stay where they are. Regions are used anew
  /// for every chunk: with another leader's result of a chunk it has also received our pieces of
  /// it.
  std::vector<Piece> collect(Slice slice) {
    std::vector<Piece> have = b_.leaf_pieces(b_.rank(), slice.begin);
    for (const Piece& piece : from_ranks_) {
      b_.receive(b_.layout().rank_of(piece.node.lo), piece.place, slice.count());
      have.push_back(piece);
    }
    std::vector<Piece> pieces;
    std::size_t next = 0;
    for (std::size_t i = 0; i < forests_[mine_].size(); ++i) {
      const Node node = forests_[mine_][i];
      const std::size_t first = next;
      while (next < have.size() && have[next].node.hi <= node.hi) ++next;
      const auto parts = std::span(have).subspan(first, next - first);
      Place place = parts.front().place;
      if (parts.size() > 1) {
        place = sums_[i];
        b_.reduce(parts, place, slice.count(), Finish::no);
      }
      pieces.push_back({node, place});
    }
    return pieces;
  }

  /// The direct exchange among leaders, over their parts of one chunk.
  void exchange(Slice slice, const std::vector<Piece>& pieces) {
    const int hosts = static_cast<int>(hosts_.size());
    const std::vector<Slice> parts = split_evenly(slice.count(), hosts);
    const auto other = [&](int steps) {
      return static_cast<std::size_t>((static_cast<int>(mine_) + steps + hosts) % hosts);
    };
    for (int i = 1; i < hosts; ++i) {
      const std::size_t to = other(i);
      for (const Piece& piece : pieces) {
        b_.send(hosts_[to].first, shifted(piece.place, parts[to].begin), parts[to].count());
      }
    }
    const Slice own = parts[mine_];
    for (int i = 1; i < hosts; ++i) {
      for (const Piece& piece : from_hosts_[other(-i)]) {
        b_.receive(hosts_[other(-i)].first, piece.place, own.count());
      }
    }
    std::vector<Piece> all;
    for (std::size_t h = 0; h < hosts_.size(); ++h) {
      for (const Piece& piece : h == mine_ ? pieces : from_hosts_[h]) {
        all.push_back({piece.node, shifted(piece.place, h == mine_ ? own.begin : 0)});
      }
    }
    const auto result = [&](Slice part) { return b_.output(slice.begin + part.begin); };
    b_.reduce(all, result(own), own.count(), Finish::yes);
    for (int i = 1; i < hosts; ++i) b_.send(hosts_[other(i)].first, result(own), own.count());
    for (int i = 1; i < hosts; ++i) {
      const Slice theirs = parts[other(-i)];
      b_.receive(hosts_[other(-i)].first, result(theirs), theirs.count());
    }
  }

  Builder& b_;
  std::vector<Host> hosts_;
  std::vector<std::vector<Node>> forests_;  // by host
  std::size_t mine_ = 0;
  std::uint64_t longest_ = 0;
  // Regions of a leader:
  std::vector<Piece> from_ranks_;               // what the host's other ranks have, in order
  std::vector<Place> sums_;                     // of the host's subtrees
  std::vector<std::vector<Piece>> from_hosts_;  // by host
};

}  // namespace

std::string refuses_scattered_hosts(const Request& /*request*/, const Layout& layout) {
  const std::vector<Host> hosts = hosts_of(layout);
  if (hosts.size() == 1) return "all ranks are on one host";
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      if (layout.host(hosts[i].first) == layout.host(hosts[k].first)) {
        return fmt::format("ranks {} and {} share a host but ranks between them do not",
                           hosts[k].first, hosts[i].first);
      }
    }
  }
  return {};
}

Plan all_reduce_hierarchical(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  if (request.count > 0) Hierarchical(b).run();
  return b.done();
}

}  // namespace lockstep::plan
