#include "plan/work.h"

#include <algorithm>
#include <bit>
#include <map>

#include "plan/builder.h"
#include "plan/form.h"
#include "plan/tree.h"

namespace lockstep::plan {
namespace {

double levels(int n) { return std::bit_width(static_cast<unsigned>(n - 1)); }  // ceil(log2 n)

}  // namespace

Terms::Terms(const Request& request, const Layout& on, std::uint64_t element_bytes)
    : layout(on), n(on.ranks()), replicas(on.replicas()), depth(levels(n)) {
  size = static_cast<double>(element_count(request)) * static_cast<double>(element_bytes);
  chunk = std::min(size,
                   static_cast<double>(chunk_length(request)) * static_cast<double>(element_bytes));
  staged_chunk = std::min(size, static_cast<double>(request.staged() * element_bytes));
  partial = request.accumulator == Accumulator::wide ? 2 : 1;
  std::map<int, int> ranks_on;
  for (int rank = 0; rank < n; ++rank) {
    const Node leaves{layout.first(rank), layout.first(rank + 1)};
    double sent = 0;
    double local = 0;
    for (const Node node : forest(leaves, replicas)) {
      sent += node.size() > 1 ? partial : 1;
      local += node.size() > 1 ? node.size() + partial : 0;
    }
    aligned = aligned && is_subtree(leaves, replicas);
    pieces = std::max(pieces, sent);
    staged = std::max(staged, local);
    per_rank = std::max(per_rank, leaves.size());
    host = std::max(host, ++ranks_on[layout.host(rank)]);
  }
  hosts = static_cast<int>(ranks_on.size());
  share = n > 1 ? static_cast<double>(n - 1) / n : 0;
  far = hosts > 1 ? static_cast<double>(n - host) / n : 0;
}

namespace {

/// Visits the nodes of the fixed tree that several ranks share, children first, with the ranks
/// [first, middle) of the left child and [middle, end) of the right one.
template <class Body>
void each_shared_node(const Layout& layout, Node node, Body body) {
  const int first = layout.rank_of(node.lo);
  const int end = layout.rank_of(node.hi - 1) + 1;
  if (end - first == 1) return;
  each_shared_node(layout, left(node), body);
  each_shared_node(layout, right(node), body);
  body(first, layout.rank_of(split(node)), end);
}

int largest(const std::vector<int>& numbers) {
  return *std::max_element(numbers.begin(), numbers.end());
}

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

}  // namespace

int doubling_peers(const Layout& layout) {
  std::vector<int> peers(at(layout.ranks()));
  each_shared_node(layout, {0, layout.replicas()}, [&](int first, int middle, int end) {
    const auto meet = [&](int begin, int ours, int theirs) {
      for (int i = 0; i < ours; ++i) {
        peers[at(begin + i)] += std::max(1, (theirs - i + ours - 1) / ours);
      }
    };
    meet(first, middle - first, end - middle);
    meet(middle, end - middle, middle - first);
  });
  return largest(peers);
}

int halving_peers(const Layout& layout) {
  std::vector<int> peers(at(layout.ranks()));
  std::map<int, std::vector<int>> holders;  // by the first rank of a node
  const auto take = [&](int first) {
    const auto found = holders.find(first);
    return found == holders.end() ? std::vector<int>{first} : found->second;
  };
  each_shared_node(layout, {0, layout.replicas()}, [&](int first, int middle, int /*end*/) {
    std::vector<int> low = take(first);
    std::vector<int> high = take(middle);
    const bool equal = low.size() == high.size();
    if (low.size() < high.size()) low.swap(high);
    const auto each = static_cast<int>(low.size() / high.size());
    for (const int rank : low) ++peers[at(rank)];
    for (const int rank : high) peers[at(rank)] += each;
    if (equal) low.insert(low.end(), high.begin(), high.end());
    holders[first] = std::move(low);
  });
  return largest(peers);
}

namespace work {
namespace {

/// Of a rank in the fixed tree, as home of a node: one on each level, more if its replicas are
/// several subtrees.
double tree_peers(const Terms& t) {
  return std::min<double>(t.n - 1, (t.depth + 1) * (t.aligned ? 1 : 2));
}
double binomial_peers(const Terms& t) { return std::min<double>(t.n - 1, t.depth + 1); }
double bruck_peers(const Terms& t) { return std::min<double>(t.n - 1, 2 * t.depth); }

/// What stays inside a host where each of its ranks sends the same part of what crosses.
double staying(const Work& w, const Terms& t) {
  return t.host > 1 ? std::max(0.0, w.bytes - w.crossing / t.host) : 0;
}

/// Both synchronisations of a shared plan: each rank looks at all flags.
Work two_flags(const Terms& t) { return {.rounds = 2, .messages = 2.0 * (t.n - 1)}; }

/// Each rank copies so many bytes, between the two.
Work shared_copy(const Terms& t, double bytes) {
  Work w = two_flags(t);
  w.bytes = bytes;
  return w;
}

/// Each rank adds its part of all inputs, between the two.
Work shared_sum(const Terms& t) {
  Work w = two_flags(t);
  w.reduced = t.size * (t.replicas + 1.0) / t.n;
  return w;
}

/// Parts along a binomial tree: the root moves all but its own, in log2(n) messages; a rank below it
/// has half of them to hand on first.
Work tree_move(const Terms& t) {
  return {.rounds = t.depth,
          .messages = t.depth,
          .bytes = 1.5 * t.size * t.share,
          .crossing = t.size * t.far * levels(t.hosts),
          .reduced = t.size * t.share,
          .peers = binomial_peers(t)};
}

/// One message from or to each of the others.
Work one_each(const Terms& t, double bytes, double crossing) {
  return {
      .rounds = 1, .messages = t.n - 1.0, .bytes = bytes, .crossing = crossing, .peers = t.n - 1.0};
}

}  // namespace

Work all_reduce_direct(const Terms& t) {
  // Pieces out, results back: (f + 1) S (n-1)/n; the owner reads all R pieces of S/n.
  Work w = {.rounds = 2,
            .messages = 2.0 * (t.n - 1) * t.pieces,
            .bytes = (t.pieces + 1) * t.size * t.share,
            .crossing = (t.pieces + 1) * t.size * t.far * t.host,
            .reduced = t.size * (t.staged + (t.replicas + 1.0) / t.n),
            .peers = t.n - 1.0};
  w.inside = staying(w, t);
  return w;
}

Work all_reduce_doubling(const Terms& t) {
  // log2(n) rounds of the whole vector, each added: 3 S.
  Work w = {.rounds = t.depth,
            .messages = t.depth,
            .bytes = t.size * t.depth * t.partial,
            .crossing = t.size * levels(t.hosts) * t.partial * t.host,
            .reduced = t.size * (3 * t.depth + t.staged),
            .peers = t.aligned ? doubling_peers(t.layout) : t.n - 1.0};
  w.apart = staying(w, t);
  return w;
}

Work all_reduce_halving(const Terms& t) {
  // 2 S (n-1)/n for powers of two; 2 S where one side hands over.
  const double moved = std::has_single_bit(static_cast<unsigned>(t.n)) ? t.share : 1;
  Work w = {.rounds = 2 * t.depth,
            .messages = 2 * t.depth,
            .bytes = t.size * moved * (1 + t.partial),
            .crossing = t.size * t.far * (1 + t.partial),
            .reduced = t.size * (3 * moved + t.staged),
            .peers = t.aligned ? halving_peers(t.layout) : t.n - 1.0};
  w.apart = staying(w, t);
  return w;
}

Work all_reduce_tree(const Terms& t) {
  // Rank 0 receives and sends log2(n) vectors; filling the pipeline takes 2 log2(n) chunks.
  const double near = 2 * (t.depth - levels(t.hosts));
  return {.rounds = 2 * t.depth,
          .messages = 2 * t.depth,
          .bytes = t.depth * (t.size * std::max(1.0, t.partial) + 2 * t.chunk),
          .crossing = levels(t.hosts) * t.size * t.partial,
          .inside = near * (t.size - t.chunk) * t.partial,
          .apart = near * 2 * t.chunk * t.partial,
          .reduced = t.size * (t.depth + 2 + t.staged),
          .peers = std::min(t.n - 1.0, tree_peers(t) + binomial_peers(t))};
}

Work all_reduce_hierarchical(const Terms& t) {
  // The leader receives and sends S of each of its k - 1 ranks; leaders exchange S (h-1)/h.
  const double others = t.host - 1;
  return {.rounds = 4,
          .messages = 2 * others * t.pieces + 2.0 * (t.hosts - 1),
          .bytes = others * t.size * (t.pieces + 1),
          .crossing = t.size * (1 + t.partial) * (t.hosts - 1) / t.hosts,
          .inside = others * (t.size - t.chunk) * (t.pieces + 1),
          .apart = others * t.chunk * (t.pieces + 1),
          .reduced = t.size * (t.host * t.pieces + 2),
          .peers = t.host - 1.0 + (t.hosts - 1.0)};
}

Work all_reduce_ring(const Terms& t) {
  // 2 (n-1) steps of S/n; one rank of a host talks to the next host.
  return {.rounds = 2.0 * (t.n - 1),
          .bytes = t.size * t.share * (1 + t.partial),
          .crossing = t.size * t.share * (1 + t.partial),
          .reduced = t.size * t.share * (2 + t.per_rank),
          .peers = std::min(t.n - 1.0, 2.0)};
}

Work all_reduce_one_pass(const Terms& t) {
  // Reads all R inputs of S/n, writes n outputs of S/n.
  Work w = two_flags(t);
  w.reduced = t.size * (static_cast<double>(t.replicas) / t.n + 1);
  return w;
}

Work all_reduce_slots(const Terms& t) {
  // Stages its inputs, then reads everybody's, all of it in the first cache.
  constexpr double kInCache = 0.25;
  return {.rounds = 1,
          .messages = t.n - 1.0,
          .reduced = kInCache * t.size * (2.0 * t.per_rank + t.replicas + 1)};
}

Work all_reduce_staged(const Terms& t) {
  // Copies what the others add, adds S/n of everybody's into n places, copies the others' sums.
  return {.rounds = 3,
          .messages = 2.0 * (t.n - 1) * t.size / std::max(t.staged_chunk, 1.0),
          .reduced = t.size * (2.0 * t.per_rank * t.share + static_cast<double>(t.replicas) / t.n +
                               1 + 2.0 * t.share)};
}

Work reduce_tree(const Terms& t) {
  return {.rounds = t.depth,
          .messages = t.depth,
          .bytes = t.depth * (t.size * t.partial + t.chunk),
          .crossing = levels(t.hosts) * t.size * t.partial,
          .reduced = t.size * (t.depth + 2 + t.staged),
          .peers = tree_peers(t)};
}

Work reduce_direct(const Terms& t) {
  return {.rounds = 1,
          .messages = (t.n - 1) * t.pieces,
          .bytes = (t.n - 1) * t.size * t.pieces,
          .crossing = t.n * t.far * t.size * t.pieces,
          .reduced = t.size * (t.replicas + 1.0),
          .peers = t.n - 1.0};
}

Work reduce_one_pass(const Terms& t) { return shared_sum(t); }

Work broadcast_tree(const Terms& t) {
  return {.rounds = t.depth,
          .messages = t.depth,
          .bytes = t.depth * (t.size + t.chunk),
          .crossing = levels(t.hosts) * t.size,
          .peers = binomial_peers(t)};
}

Work broadcast_scatter_gather(const Terms& t) {
  return {.rounds = static_cast<double>(t.n),
          .messages = t.n - 1.0,
          .bytes = 2 * t.size * t.share,
          .crossing = 2 * t.size * t.share,
          .peers = std::min(t.n - 1.0, binomial_peers(t) + 2)};
}

Work broadcast_shared(const Terms& t) {
  Work w = shared_copy(t, t.size);
  w.messages = t.n - 1.0;  // only the root looks at all flags
  return w;
}

Work all_gather_direct(const Terms& t) {
  return one_each(t, t.size * t.share, t.size * t.far * t.host);
}

Work all_gather_bruck(const Terms& t) {
  return {.rounds = t.depth,
          .messages = 2 * t.depth,
          .bytes = t.size * t.share,
          .crossing = t.size * t.far * t.host,
          .peers = bruck_peers(t)};
}

Work all_gather_ring(const Terms& t) {
  return {.rounds = t.n - 1.0,
          .bytes = t.size * t.share,
          .crossing = t.size * t.share,
          .peers = std::min(t.n - 1.0, 2.0)};
}

Work all_gather_shared(const Terms& t) { return shared_copy(t, t.size * t.share); }

Work reduce_scatter_direct(const Terms& t) {
  return {.rounds = 1,
          .messages = (t.n - 1) * t.pieces,
          .bytes = t.pieces * t.size * t.share,
          .crossing = t.pieces * t.size * t.far * t.host,
          .reduced = t.size * (t.staged + (t.replicas + 1.0) / t.n),
          .peers = t.n - 1.0};
}

Work reduce_scatter_halving(const Terms& t) {
  // S (n-1)/n for powers of two; S where one side hands over. Then a part, S/n, to its rank.
  const bool power = std::has_single_bit(static_cast<unsigned>(t.n));
  const double moved = power ? t.share : 1;
  const double delivered = (power ? 1.0 : 2.0) / t.n;
  return {.rounds = t.depth + 1,
          .messages = t.depth + 1,
          .bytes = t.size * (moved * t.partial + delivered),
          .crossing = t.size * (t.far * t.partial + t.host * delivered),
          .reduced = t.size * (3 * moved + t.staged),
          .peers = t.aligned ? std::min(t.n - 1.0, halving_peers(t.layout) + 3.0) : t.n - 1.0};
}

Work reduce_scatter_tree(const Terms& t) {
  // As reduce, then down: half of the vector goes first.
  return {.rounds = 2 * t.depth,
          .messages = 2 * t.depth,
          .bytes = t.depth * (t.size * t.partial + t.chunk) + t.size * t.share,
          .crossing = levels(t.hosts) * t.size * t.partial + t.size * t.far,
          .reduced = t.size * (t.depth + 3 + t.staged),
          .peers = std::min(t.n - 1.0, tree_peers(t) + binomial_peers(t))};
}

Work reduce_scatter_ring(const Terms& t) {
  return {.rounds = t.n - 1.0,
          .bytes = t.size * t.share * t.partial,
          .crossing = t.size * t.share * t.partial,
          .reduced = t.size * t.share * (2 + t.per_rank),
          .peers = std::min(t.n - 1.0, 2.0)};
}

Work reduce_scatter_shared(const Terms& t) { return shared_sum(t); }

// The root is the busiest with messages; in shared memory each rank copies its own part.
Work gather_direct(const Terms& t) { return one_each(t, t.size * t.share, t.size * t.far); }
Work gather_tree(const Terms& t) { return tree_move(t); }
Work gather_shared(const Terms& t) { return shared_copy(t, t.size / t.n); }
Work scatter_direct(const Terms& t) { return one_each(t, t.size * t.share, t.size * t.far); }
Work scatter_tree(const Terms& t) { return tree_move(t); }
Work scatter_shared(const Terms& t) { return shared_copy(t, t.size / t.n); }

// Here S is one block.
Work all_to_all_direct(const Terms& t) {
  return one_each(t, t.size * (t.n - 1), t.size * t.far * t.host * t.n);
}
Work all_to_all_bruck(const Terms& t) {
  // Half of the blocks in each round, in ever more messages; then a copy.
  const double moved = t.size * t.n / 2 * t.depth;
  return {.rounds = t.depth,
          .messages = 2.0 * t.n,
          .bytes = moved,
          .crossing = t.size * t.n / 2 * levels(t.hosts) * t.host,
          .reduced = 2 * t.size * t.n,
          .peers = bruck_peers(t)};
}
Work all_to_all_shared(const Terms& t) { return shared_copy(t, t.size * (t.n - 1)); }

Work barrier_dissemination(const Terms& t) {
  return {.rounds = t.depth, .messages = t.depth, .peers = bruck_peers(t)};
}
Work barrier_shared(const Terms& t) { return {.rounds = 1, .messages = t.n - 1.0}; }

Work send_receive_direct(const Terms& t) {
  return {.rounds = 2, .bytes = t.size, .crossing = t.size, .peers = 1};
}
Work send_receive_shared(const Terms& t) { return {.rounds = 2, .bytes = t.size}; }

}  // namespace work
}  // namespace lockstep::plan
