// Plans of very many ranks: how large they are, whatever they move.
#include <gtest/gtest.h>

#include "plan/select.h"

namespace lockstep::plan {
namespace {

constexpr int kRanks = 1024;
constexpr std::size_t kMostBytes = std::size_t{1} << 20;

Layout on_hosts(int hosts, int replicas) {
  std::vector<int> host(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    host[static_cast<std::size_t>(rank)] = rank * hosts / kRanks;
  }
  return Layout(std::vector<int>(kRanks, replicas), host);
}

void expect_small_plans(const Layout& layout, Access access, Accumulator accumulator) {
  const Costs costs;
  const Overrides overrides;
  for (int k = 0; k < kKindCount; ++k) {
    for (const std::uint64_t bytes : {4ULL << 10, 1ULL << 20, 400'000'000ULL, 1ULL << 36}) {
      Request request{.kind = static_cast<Kind>(k), .count = bytes / 4};
      if (request.kind == Kind::all_to_all) request.count = bytes / 4 / kRanks;
      request.counts.assign(kRanks, bytes / 4 / kRanks);
      request.to = 1;
      request.accumulator = accumulator;
      request.chunk = kChunkBytes / 4;
      const Choice choice = select(request, {.layout = layout,
                                             .access = access,
                                             .element_bytes = 4,
                                             .costs = costs,
                                             .overrides = overrides,
                                             .slot_bytes = std::size_t{768} << 10});
      for (const int rank : {0, 1, 512, 1023}) {
        EXPECT_LE(bytes_of(choice.algorithm->make(request, layout, rank)), kMostBytes)
            << to_string(request.kind) << " " << choice.algorithm->name << " of " << bytes
            << " bytes, rank " << rank;
      }
    }
  }
}

TEST(PlanSize, OfOneHost) {
  for (const Access access : {Access::messages, Access::slots, Access::shared}) {
    expect_small_plans(Layout::uniform(kRanks), access, Accumulator::same);
  }
}

TEST(PlanSize, OfWideSums) {
  expect_small_plans(Layout::uniform(kRanks), Access::messages, Accumulator::wide);
}

TEST(PlanSize, OfManyHosts) {
  expect_small_plans(on_hosts(128, 1), Access::messages, Accumulator::same);
  expect_small_plans(on_hosts(kRanks, 1), Access::messages, Accumulator::same);
}

TEST(PlanSize, OfReplicasThatAreNoSubtree) {
  expect_small_plans(on_hosts(128, 3), Access::messages, Accumulator::same);
}

TEST(PlanSize, StagedGivesWayToPlansThatStaySmall) {
  const Algorithm& staged = *find_algorithm(Kind::all_reduce, "staged");
  const Request request{.count = 100'000'000, .chunk = kChunkBytes / 4};
  EXPECT_NE(staged.refuses(request, Layout::uniform(kRanks)), "");
  EXPECT_EQ(staged.refuses(request, Layout::uniform(32)), "");
  EXPECT_EQ(staged.refuses(request, Layout::uniform(2)), "");
}

}  // namespace
}  // namespace lockstep::plan
