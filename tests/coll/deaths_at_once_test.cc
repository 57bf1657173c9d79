// A6: ranks that die together, in virtual time. As long as rank 0 lives every one of them is named,
// however many they are; without it at least one is, and the same by all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <vector>

#include "coll/control.h"
#include "tests/sim_cluster/mesh.h"

namespace lockstep::coll {
namespace {

using simulated::host;
using std::chrono_literals::operator""ms;

class SimulatedRanks {
 public:
  SimulatedRanks(int size, std::uint64_t seed)
      : world_(seed), network_(world_, {.delay = 1ms, .jitter = 3ms}), ranks_(as_size(size)) {
    mesh_ = simulated::make_mesh(world_, network_, size, 4000, [&](int low, int high) {
      const auto peers = control_peers(low, size);
      return std::find(peers.begin(), peers.end(), high) != peers.end();
    });
    for (int rank = 0; rank < size; ++rank) {
      Rank& own = ranks_[as_size(rank)];
      own.control =
          std::make_unique<Control>(Control::Setup{.rank = rank,
                                                   .size = size,
                                                   .generation = 1,
                                                   .failure = &own.failure,
                                                   .history = &own.history,
                                                   .peers = simulated::borrow(mesh_[as_size(rank)]),
                                                   .timing = {}});
    }
  }
  /// All of them in the same moment; what every survivor says afterwards.
  std::set<std::vector<int>> culprits_of(const std::set<int>& dead) {
    run(350ms);
    for (const int rank : dead) network_.kill(host(rank));
    dead_ = dead;
    run(200ms);
    std::set<std::vector<int>> said;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      if (!dead.contains(rank)) said.insert(ranks_[as_size(rank)].failure.cause().culprits());
    }
    return said;
  }

 private:
  struct Rank {
    transport::Failure failure;
    transport::History history;
    std::unique_ptr<Control> control;
  };
  static std::size_t as_size(int number) { return static_cast<std::size_t>(number); }
  void run(Duration span) {
    const Time end = world_.now() + span;
    while (world_.now() < end) {
      for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
        if (!dead_.contains(rank)) ranks_[as_size(rank)].control->poll(world_.now());
      }
      world_.run_for(1ms);
    }
  }

  sim::World world_;
  sim::Network network_;
  simulated::Mesh mesh_;
  std::vector<Rank> ranks_;
  std::set<int> dead_;
};

/// Every set of two or more of the others, up to all of them.
TEST(DeathsAtOnce, A6AllAreNamedWhileRankZeroLives) {
  constexpr int kRanks = 6;
  for (unsigned set = 0; set < 1U << kRanks; set += 2) {
    std::set<int> dead;
    for (int rank = 1; rank < kRanks; ++rank) {
      if ((set >> rank & 1U) != 0) dead.insert(rank);
    }
    if (dead.size() < 2) continue;
    const std::vector<int> all(dead.begin(), dead.end());
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
      EXPECT_THAT(SimulatedRanks(kRanks, seed).culprits_of(dead), testing::ElementsAre(all))
          << "seed " << seed;
    }
  }
}

TEST(DeathsAtOnce, A6WithoutRankZeroSomeAreNamedAndTheSameByAll) {
  for (const std::set<int>& dead :
       {std::set<int>{0, 3}, {0, 1, 2}, {0, 2, 3, 4}, {0, 1, 2, 3, 4}}) {
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
      const auto said = SimulatedRanks(6, seed).culprits_of(dead);
      ASSERT_EQ(said.size(), 1U) << "seed " << seed;
      EXPECT_THAT(*said.begin(), testing::IsSubsetOf(dead));
      EXPECT_FALSE(said.begin()->empty());
    }
  }
}

}  // namespace
}  // namespace lockstep::coll
