#include "plan/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>

#include "plan/form.h"
#include "plan/scan.h"
#include "plan/tree.h"

namespace lockstep::plan {
namespace {

// Handling one more message or flag costs this part of a latency: a rank starts several at once.
constexpr double kOverhead = 0.25;
// A byte between two processes of a host is copied into a ring and out again, and the two wait for
// each other: so many times the cost of a byte in memory.
constexpr double kThroughRing = 5;

double levels(int n) { return std::bit_width(static_cast<unsigned>(n - 1)); }  // ceil(log2 n)

/// What an algorithm costs the rank (or host) that has most to do. Rounds are latencies one after
/// another; messages those it handles besides; bytes are counted in one direction.
struct Work {
  double rounds = 0;
  double messages = 0;
  double bytes = 0;     // sent or received by the busiest rank
  double crossing = 0;  // leaving the busiest host, if there are several
  double inside = 0;    // of bytes: within a host, while others cross, if there are several
  double apart = 0;     // the same, while nothing crosses: rounds of whole vectors, a first chunk
  double reduced = 0;   // bytes read and written by the busiest rank's reductions and copies
};

/// The quantities all formulas are written in.
struct Terms {
  Terms(const Request& request, const Layout& layout, std::uint64_t element_bytes)
      : n(layout.ranks()), replicas(layout.replicas()), depth(levels(n)) {
    size = static_cast<double>(element_count(request)) * static_cast<double>(element_bytes);
    chunk = std::min(size, static_cast<double>(request.chunk) * static_cast<double>(element_bytes));
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
      pieces = std::max(pieces, sent);
      staged = std::max(staged, local);
      per_rank = std::max(per_rank, leaves.size());
      host = std::max(host, ++ranks_on[layout.host(rank)]);
    }
    hosts = static_cast<int>(ranks_on.size());
    share = n > 1 ? static_cast<double>(n - 1) / n : 0;
    far = hosts > 1 ? static_cast<double>(n - host) / n : 0;
  }

  int n;
  int replicas;
  double depth;        // ceil(log2 n)
  double size = 0;     // bytes of the whole vector
  double chunk = 0;    // bytes of a chunk
  double partial = 1;  // bytes of a partial sum by those of a value
  double pieces = 0;   // what the rank with the most subtrees sends per value
  double staged = 0;   // what it reads and writes to add them up
  int per_rank = 1;    // most replicas of a rank
  int host = 0;        // most ranks of a host
  int hosts = 1;
  double share = 0;  // (n - 1) / n
  double far = 0;    // the part of the ranks that are on other hosts
};

/// What stays inside a host where each of its ranks sends the same part of what crosses.
double staying(const Work& w, const Terms& t) {
  return t.host > 1 ? std::max(0.0, w.bytes - w.crossing / t.host) : 0;
}

/// Both synchronisations of a shared plan: each rank looks at all flags.
Work two_flags(const Terms& t) { return {.rounds = 2, .messages = 2.0 * (t.n - 1)}; }

Work all_reduce(std::string_view name, const Terms& t) {
  Work w;
  const bool power = std::has_single_bit(static_cast<unsigned>(t.n));
  if (name == "direct") {
    // Pieces out, results back: (f + 1) S (n-1)/n; the owner reads all R pieces of S/n.
    w = {.rounds = 2,
         .messages = 2.0 * (t.n - 1) * t.pieces,
         .bytes = (t.pieces + 1) * t.size * t.share,
         .crossing = (t.pieces + 1) * t.size * t.far * t.host,
         .reduced = t.size * (t.staged + (t.replicas + 1.0) / t.n)};
    w.inside = staying(w, t);
  } else if (name == "doubling") {
    // log2(n) rounds of the whole vector, each added: 3 S.
    w = {.rounds = t.depth,
         .messages = t.depth,
         .bytes = t.size * t.depth * t.partial,
         .crossing = t.size * levels(t.hosts) * t.partial * t.host,
         .reduced = t.size * (3 * t.depth + t.staged)};
    w.apart = staying(w, t);
  } else if (name == "halving") {
    // 2 S (n-1)/n for powers of two; 2 S where one side hands over.
    const double moved = power ? t.share : 1;
    w = {.rounds = 2 * t.depth,
         .messages = 2 * t.depth,
         .bytes = t.size * moved * (1 + t.partial),
         .crossing = t.size * t.far * (1 + t.partial),
         .reduced = t.size * (3 * moved + t.staged)};
    w.apart = staying(w, t);
  } else if (name == "tree") {
    // Rank 0 receives and sends log2(n) vectors; filling the pipeline takes 2 log2(n) chunks.
    const double near = 2 * (t.depth - levels(t.hosts));
    w = {.rounds = 2 * t.depth,
         .messages = 2 * t.depth,
         .bytes = t.depth * (t.size * std::max(1.0, t.partial) + 2 * t.chunk),
         .crossing = levels(t.hosts) * t.size * t.partial,
         .inside = near * (t.size - t.chunk) * t.partial,
         .apart = near * 2 * t.chunk * t.partial,
         .reduced = t.size * (t.depth + 2 + t.staged)};
  } else if (name == "ring") {
    // 2 (n-1) steps of S/n; one rank of a host talks to the next host.
    w = {.rounds = 2.0 * (t.n - 1),
         .messages = 0,
         .bytes = t.size * t.share * (1 + t.partial),
         .crossing = t.size * t.share * (1 + t.partial),
         .reduced = t.size * t.share * (2 + t.per_rank)};
  } else if (name == "hierarchical") {
    // The leader receives and sends S of each of its k - 1 ranks; leaders exchange S (h-1)/h.
    const double others = t.host - 1;
    w = {.rounds = 4,
         .messages = 2 * others * t.pieces + 2.0 * (t.hosts - 1),
         .bytes = others * t.size * (t.pieces + 1),
         .crossing = t.size * (1 + t.partial) * (t.hosts - 1) / t.hosts,
         .inside = others * (t.size - t.chunk) * (t.pieces + 1),
         .apart = others * t.chunk * (t.pieces + 1),
         .reduced = t.size * (t.host * t.pieces + 2)};
  } else if (name == "one_pass") {
    // Reads all R inputs of S/n, writes n outputs of S/n.
    w = two_flags(t);
    w.reduced = t.size * (static_cast<double>(t.replicas) / t.n + 1);
  } else if (name == "staged") {
    // Copies what the others add, adds S/n of everybody's into n places, copies the others' sums.
    w = {.rounds = 3,
         .messages = 2.0 * (t.n - 1) * t.size / std::max(t.chunk, 1.0),
         .reduced = t.size * (2.0 * t.per_rank * t.share + static_cast<double>(t.replicas) / t.n +
                              1 + 2.0 * t.share)};
  } else {  // slots: stages its inputs, then reads everybody's, all of it in the first cache
    constexpr double kInCache = 0.25;
    w = {.rounds = 1,
         .messages = t.n - 1.0,
         .reduced = kInCache * t.size * (2.0 * t.per_rank + t.replicas + 1)};
  }
  return w;
}

Work reduce(std::string_view name, const Terms& t) {
  if (name == "tree") {
    return {.rounds = t.depth,
            .messages = t.depth,
            .bytes = t.depth * (t.size * t.partial + t.chunk),
            .crossing = levels(t.hosts) * t.size * t.partial,
            .reduced = t.size * (t.depth + 2 + t.staged)};
  }
  if (name == "direct") {
    return {.rounds = 1,
            .messages = (t.n - 1) * t.pieces,
            .bytes = (t.n - 1) * t.size * t.pieces,
            .crossing = t.n * t.far * t.size * t.pieces,
            .reduced = t.size * (t.replicas + 1.0)};
  }
  Work w = two_flags(t);  // one_pass
  w.reduced = t.size * (t.replicas + 1.0) / t.n;
  return w;
}

Work reduce_scatter(std::string_view name, const Terms& t) {
  if (name == "direct") {
    return {.rounds = 1,
            .messages = (t.n - 1) * t.pieces,
            .bytes = t.pieces * t.size * t.share,
            .crossing = t.pieces * t.size * t.far * t.host,
            .reduced = t.size * (t.staged + (t.replicas + 1.0) / t.n)};
  }
  if (name == "ring") {
    return {.rounds = t.n - 1.0,
            .messages = 0,
            .bytes = t.size * t.share * t.partial,
            .crossing = t.size * t.share * t.partial,
            .reduced = t.size * t.share * (2 + t.per_rank)};
  }
  Work w = two_flags(t);  // shared
  w.reduced = t.size * (t.replicas + 1.0) / t.n;
  return w;
}

Work broadcast(std::string_view name, const Terms& t) {
  if (name == "tree") {
    return {.rounds = t.depth,
            .messages = t.depth,
            .bytes = t.depth * (t.size + t.chunk),
            .crossing = levels(t.hosts) * t.size};
  }
  if (name == "scatter_gather") {
    return {.rounds = static_cast<double>(t.n),
            .messages = t.n - 1.0,
            .bytes = 2 * t.size * t.share,
            .crossing = 2 * t.size * t.share};
  }
  Work w = two_flags(t);  // shared: only the root looks at all flags
  w.messages = t.n - 1.0;
  w.bytes = t.size;
  return w;
}

/// Gather, scatter, all_gather, all_to_all: who moves how much, once.
Work move(Kind kind, std::string_view name, const Terms& t) {
  const bool rooted = kind == Kind::gather || kind == Kind::scatter;
  const double bytes = kind == Kind::all_to_all ? t.size * (t.n - 1) : t.size * t.share;
  if (name == "shared") {
    Work w = two_flags(t);
    w.bytes = rooted ? t.size / t.n : bytes;
    return w;
  }
  if (name == "ring")
    return {.rounds = t.n - 1.0, .messages = 0, .bytes = bytes, .crossing = bytes};
  // Direct: every rank of a host sends to all others by itself.
  double crossing = t.size * t.far;
  if (kind == Kind::all_gather || kind == Kind::all_to_all) crossing *= t.host;
  if (kind == Kind::all_to_all) crossing *= t.n;
  return {.rounds = 1, .messages = t.n - 1.0, .bytes = bytes, .crossing = crossing};
}

Work work_of(const Algorithm& algorithm, const Terms& t) {
  switch (algorithm.kind) {
    case Kind::all_reduce:
      return all_reduce(algorithm.name, t);
    case Kind::reduce:
      return reduce(algorithm.name, t);
    case Kind::reduce_scatter:
      return reduce_scatter(algorithm.name, t);
    case Kind::broadcast:
      return broadcast(algorithm.name, t);
    case Kind::all_gather:
    case Kind::gather:
    case Kind::scatter:
    case Kind::all_to_all:
      return move(algorithm.kind, algorithm.name, t);
    case Kind::barrier:
      if (algorithm.access == Access::messages) return {.rounds = t.depth, .messages = t.depth};
      return {.rounds = 1, .messages = t.n - 1.0};
    case Kind::send_receive:
      if (algorithm.access == Access::messages)
        return {.rounds = 1, .bytes = t.size, .crossing = t.size};
      return {.rounds = 2, .bytes = t.size};
  }
  return {};
}

Status set_cost(std::string_view key, double value, Scanner& scan, Costs& costs) {
  const auto per_byte = [&](double& out) -> Status {
    if (value <= 0) return scan.expected_instead("a bandwidth above zero, in bytes per second");
    out = 1e6 / value;
    return {};
  };
  if (key == "memory.alpha" || key == "tcp.alpha") {
    if (value < 0) return scan.expected_instead("a time of zero or more, in microseconds");
    (key == "tcp.alpha" ? costs.tcp : costs.memory).alpha_us = value;
    return {};
  }
  if (key == "memory.bandwidth") return per_byte(costs.memory.beta_us_per_byte);
  if (key == "tcp.bandwidth") return per_byte(costs.tcp.beta_us_per_byte);
  return per_byte(costs.gamma_us_per_byte);
}

constexpr std::string_view kKeys[] = {"memory.alpha", "memory.bandwidth", "tcp.alpha",
                                      "tcp.bandwidth", "reduce.bandwidth"};

}  // namespace

Status parse_costs(std::string_view text, Costs& costs) {
  Scanner scan("costs", text);
  Costs parsed = costs;
  while (!scan.at_end()) {
    const std::string_view key = scan.word();
    if (std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys)) {
      return scan.expected_instead(
          "memory.alpha, memory.bandwidth, tcp.alpha, tcp.bandwidth or reduce.bandwidth");
    }
    if (!scan.accept('=')) return scan.expected("'='");
    double value = 0;
    if (!scan.number(value)) return scan.expected("a number");
    if (Status status = set_cost(key, value, scan, parsed); !status.ok()) return status;
    if (!scan.at_end() && !scan.accept(',')) return scan.expected("','");
  }
  costs = parsed;
  return {};
}

double estimate(const Algorithm& algorithm, const Request& request, const Layout& layout,
                std::uint64_t element_bytes, Access access, const Costs& costs) {
  const Terms t(request, layout, element_bytes);
  const bool reduces = is_reduction(request.kind);
  // Alone: one pass over memory at most.
  if (t.n == 1) return t.size * (reduces ? t.replicas + 1.0 : 2.0) * costs.gamma_us_per_byte;
  const Work w = work_of(algorithm, t);
  const double starts = w.rounds + kOverhead * w.messages;
  const double arithmetic = w.reduced * costs.gamma_us_per_byte;
  if (t.hosts > 1) {
    // Bytes inside hosts and between them flow at the same time; the slower one counts.
    const double ring = kThroughRing * costs.memory.beta_us_per_byte;
    return starts * costs.tcp.alpha_us +
           std::max({w.bytes * costs.memory.beta_us_per_byte, w.inside * ring,
                     w.crossing * costs.tcp.beta_us_per_byte}) +
           w.apart * ring + arithmetic;
  }
  const LinkCost& link = access != Access::messages ? costs.memory : costs.tcp;
  // A message through memory that threads share is copied once, with a flag each way; one between
  // processes is copied into a ring and out again.
  double hops = 1;
  if (algorithm.access == Access::messages && access == Access::shared) hops = 2;
  if (algorithm.access == Access::messages && access == Access::slots) hops = kThroughRing;
  return hops * (starts * link.alpha_us + w.bytes * link.beta_us_per_byte) + arithmetic;
}

}  // namespace lockstep::plan
