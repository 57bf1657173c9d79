// How many ranks a rank exchanges messages with: each costs a connection.
#include <gtest/gtest.h>

#include <bit>
#include <set>

#include "plan/check.h"
#include "plan/select.h"
#include "plan/work.h"

namespace lockstep::plan {
namespace {

/// Of the rank that has most.
int peers_of(const Algorithm& algorithm, const Request& request, const Layout& layout) {
  std::size_t most = 0;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    std::set<int> peers;
    for (const Instruction& code : algorithm.make(request, layout, rank).code) {
      if (code.verb == Verb::send || code.verb == Verb::receive) peers.insert(code.peer);
    }
    most = std::max(most, peers.size());
  }
  return static_cast<int>(most);
}

Request request_of(Kind kind, std::uint64_t count, int ranks) {
  Request request{.kind = kind, .count = count, .chunk = kChunkBytes / 4};
  request.counts.assign(static_cast<std::size_t>(ranks),
                        std::max<std::uint64_t>(count / static_cast<std::uint64_t>(ranks), 1));
  request.to = ranks - 1;
  request.root = ranks / 3;
  return request;
}

Choice choose(const Request& request, const Layout& layout, Access access) {
  static const Costs costs;
  static const Overrides overrides;
  return select(request, {.layout = layout,
                          .access = access,
                          .element_bytes = 4,
                          .costs = costs,
                          .overrides = overrides,
                          .slot_bytes = std::size_t{768} << 10});
}

TEST(Peers, NoAlgorithmHasMoreThanItsFormulaSays) {
  for (const int n : {2, 3, 5, 8, 13, 16, 17, 31, 33, 64}) {
    for (const int replicas : {1, 2, 3}) {
      for (const int hosts : {1, 2}) {
        std::vector<int> host(static_cast<std::size_t>(n));
        for (int rank = 0; rank < n; ++rank)
          host[static_cast<std::size_t>(rank)] = rank * hosts / n;
        const Layout layout(std::vector<int>(host.size(), replicas), host);
        for (const Algorithm& algorithm : algorithms()) {
          if (algorithm.access != Access::messages) continue;
          const Request request = request_of(algorithm.kind, 1000, n);
          if (!algorithm.refuses(request, layout).empty()) continue;
          const double most = algorithm.work(Terms(request, layout, 4)).peers;
          EXPECT_LE(peers_of(algorithm, request, layout), most)
              << to_string(algorithm.kind) << " " << algorithm.name << " " << n << " x "
              << replicas;
          EXPECT_LE(most, n - 1);
        }
      }
    }
  }
}

TEST(Peers, GrowWithLogarithmForSmallMessagesOfEveryNumberOfRanks) {
  for (const int n : {18, 31, 33, 64, 65, 100, 257, 1000, 1024, 1025}) {
    const Layout layout = Layout::uniform(n);
    for (int k = 0; k < kKindCount; ++k) {
      const auto kind = static_cast<Kind>(k);
      for (const std::uint64_t bytes : {4ULL, 4096ULL, 65536ULL}) {
        std::uint64_t count = bytes / 4;
        if (kind == Kind::all_to_all) count /= static_cast<std::uint64_t>(n);
        if (count == 0) continue;
        const Request request = request_of(kind, count, n);
        for (const Access access : {Access::messages, Access::slots}) {
          const Choice choice = choose(request, layout, access);
          const Algorithm& chosen = *choice.algorithm;
          EXPECT_LE(choice.candidates.front().peers, most_peers(n))
              << to_string(kind) << " " << chosen.name << " of " << bytes << " bytes, " << n;
          if (n > 100) continue;
          EXPECT_LE(peers_of(chosen, request, layout), choice.candidates.front().peers)
              << to_string(kind) << " " << chosen.name << " of " << bytes << " bytes, " << n;
        }
      }
    }
  }
  EXPECT_EQ(most_peers(1024), 40);
}

TEST(Peers, GrowWithLogarithmForLargeMessagesOfPowersOfTwo) {
  for (const int n : {32, 64, 256, 1024}) {
    const Layout layout = Layout::uniform(n);
    for (int k = 0; k < kKindCount; ++k) {
      const auto kind = static_cast<Kind>(k);
      if (kind == Kind::all_to_all) continue;
      for (const std::uint64_t bytes : {1ULL << 20, 1ULL << 24, 400'000'000ULL, 1ULL << 34}) {
        const Request request = request_of(kind, bytes / 4, n);
        for (const Access access : {Access::messages, Access::slots}) {
          const Choice choice = choose(request, layout, access);
          EXPECT_LE(choice.candidates.front().peers, most_peers(n))
              << to_string(kind) << " " << choice.algorithm->name << " of " << bytes << " bytes, "
              << n;
        }
      }
    }
  }
}

TEST(Peers, ThreadsAndSmallGroupsTakeTheFastest) {
  for (const int n : {2, 4, 8, 16}) {
    const Choice choice =
        choose(request_of(Kind::all_to_all, 1 << 10, n), Layout::uniform(n), Access::messages);
    EXPECT_EQ(choice.candidates.front().peers, n - 1);
  }
}

}  // namespace
}  // namespace lockstep::plan
