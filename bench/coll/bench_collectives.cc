// Ranks as threads against what the machine can do at best. Prints the targets; exit code 1 if one
// is short. Buffers are rewritten before every call, ours and the other take turns in the same run,
// and only repetitions count during which the distance of the cores did not change.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/coll/bare.h"
#include "bench/coll/ranks.h"
#include "bench/support/paired.h"

namespace lockstep::bench {
namespace {

using coll::Session;

constexpr std::size_t kMiB = 1 << 20;
constexpr PairOptions kPairs{.pairs = 21, .attempts = 84};

/// One buffer of floats for each rank, aligned to a page.
class Buffers {
 public:
  Buffers(int ranks, std::size_t bytes) : count_(bytes / sizeof(float)) {
    const std::size_t whole = (bytes + 4095) / 4096 * 4096;
    for (int rank = 0; rank < ranks; ++rank) {
      memory_.emplace_back(static_cast<float*>(std::aligned_alloc(4096, whole)));
    }
  }

  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] float* of(int rank) const { return memory_[static_cast<std::size_t>(rank)].get(); }
  void rewrite(int rank) const { std::fill_n(of(rank), count_, static_cast<float>(rank) + 1); }
  void all_reduce(Session& group) const {
    group.all_reduce(Op::sum, std::span(of(group.rank()), count_));
  }

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  std::size_t count_;
  std::vector<std::unique_ptr<float, Free>> memory_;
};

/// One all-reduce of fresh buffers.
double fresh_all_reduce(Ranks& ranks, const Buffers& buffers) {
  return ranks.time([&](Session& group) { buffers.rewrite(group.rank()); },
                    [&](Session& group) { buffers.all_reduce(group); });
}

/// Two ranks against two threads that read and write the same memory with nothing in between.
void two_ranks_large(Targets& targets) {
  Ranks ranks(2);
  const Buffers buffers(2, 64 * kMiB);
  const auto bare = [&] {
    return ranks.time([&](Session& group) { buffers.rewrite(group.rank()); },
                      [&](Session& group) {
                        const std::size_t half = buffers.count() / 2;
                        const std::size_t at = half * static_cast<std::size_t>(group.rank());
                        add_both(buffers.of(0) + at, buffers.of(1) + at, half);
                      });
  };
  targets.add("threads_allreduce_2x64MiB",
              paired_ratio_timed(
                  kPairs, [&] { return fresh_all_reduce(ranks, buffers); }, bare),
              0.75);
}

/// Seconds of one call, measured over several in a row; each rank writes its element before each.
double repeated(Ranks& ranks, const Buffers& buffers, int calls) {
  const double all = ranks.time([&](Session& group) { buffers.rewrite(group.rank()); },
                                [&](Session& group) {
                                  for (int i = 0; i < calls; ++i) {
                                    buffers.rewrite(group.rank());
                                    buffers.all_reduce(group);
                                  }
                                });
  return all / calls;
}

/// More ranks than cores: what counts is that waiting ranks let the others work.
void eight_ranks_small(Targets& targets) {
  constexpr double kBound = 200e-6;
  Ranks ranks(8);
  const Buffers buffers(8, sizeof(float));
  targets.add("threads_allreduce_8ranks_4B",
              paired_ratio_timed(
                  kPairs, [&] { return repeated(ranks, buffers, 50); }, [] { return kBound; }),
              1.0);
}

void eight_ranks_large(Targets& targets) {
  constexpr double kAllowed = 3;
  Ranks two(2);
  Ranks eight(8);
  const Buffers of_two(2, 16 * kMiB);
  const Buffers of_eight(8, 16 * kMiB);
  targets.add("threads_allreduce_8ranks_16MiB",
              paired_ratio_timed(
                  kPairs, [&] { return fresh_all_reduce(eight, of_eight) / 8; },
                  [&] { return kAllowed * fresh_all_reduce(two, of_two) / 2; }),
              1.0);
}

/// Small messages beside the cache line they cannot beat; a report without a target.
void two_ranks_latency() {
  constexpr int kCalls = 2000;
  Ranks ranks(2);
  fmt::print(
      "latency of all_reduce, 2 ranks, ns [p10 to p90]; cache line one way in the same run\n");
  for (const std::size_t bytes : {std::size_t{4}, std::size_t{256}, std::size_t{4096}}) {
    const Buffers buffers(2, bytes);
    std::vector<double> calls;
    std::vector<double> line;
    repeated(ranks, buffers, kCalls);
    Distance before = distance_of(ping_pong_ns());
    for (int i = 0; i < kPairs.attempts && static_cast<int>(calls.size()) < kPairs.pairs; ++i) {
      const double call = repeated(ranks, buffers, kCalls);
      const double probe = ping_pong_ns();
      if (distance_of(probe) == before) {
        calls.push_back(call * 1e9);
        line.push_back(probe);
      }
      before = distance_of(probe);
    }
    fmt::print(
        "  {:>5} B: {:>6.0f} [{:.0f} to {:.0f}]   cache line {:.0f} [{:.0f} to {:.0f}]   {} "
        "repetitions, {}\n",
        bytes, quantile(calls, 0.5), quantile(calls, 0.1), quantile(calls, 0.9),
        quantile(line, 0.5), quantile(line, 0.1), quantile(line, 0.9), calls.size(),
        to_string(before));
  }
}

int run() {
  Targets targets;
  two_ranks_large(targets);
  eight_ranks_small(targets);
  eight_ranks_large(targets);
  two_ranks_latency();
  return targets.finish();
}

}  // namespace
}  // namespace lockstep::bench

int main() { return lockstep::bench::run(); }
