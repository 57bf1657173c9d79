// Seeding, saving and restoring the generators of all replicas.
#include "fixtures.h"
#include "lockstep/testing.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::run_workers;

MirroredOptions seeded(int replicas, std::uint64_t seed) {
  MirroredOptions options = cpus(replicas);
  options.replicas.seed = seed;
  return options;
}

/// An odd number of normal ones: half of a pair stays behind in the generator.
PerReplica<Tensor> draw(Strategy& strategy) {
  return strategy.run([] { return torch::randn({5}); });
}

TEST(RandomState, ManualSeedIsThatOfANewStrategy) {
  MirroredStrategy strategy(seeded(2, 1));
  draw(strategy);
  strategy.manual_seed(9);
  const auto drawn = draw(strategy);
  MirroredStrategy fresh(seeded(2, 9));
  const auto expected = draw(fresh);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(torch::equal(drawn[i], expected[i])) << i;
  EXPECT_FALSE(torch::equal(drawn[0], drawn[1]));
}

TEST(RandomState, IsSavedAndRestored) {
  MirroredStrategy strategy(seeded(3, 1));
  draw(strategy);
  const std::vector<Tensor> states = strategy.generator_state();
  ASSERT_EQ(states.size(), 3);
  const auto expected = draw(strategy);
  draw(strategy);
  strategy.set_generator_state(states);
  const auto again = draw(strategy);
  MirroredStrategy other(seeded(3, 2));
  other.set_generator_state(states);
  const auto elsewhere = draw(other);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(torch::equal(expected[i], again[i])) << i;
    EXPECT_TRUE(torch::equal(expected[i], elsewhere[i])) << i;
  }
}

TEST(RandomState, BelongsToGlobalReplicasInEveryLayout) {
  MirroredStrategy four(seeded(4, 1));
  draw(four);
  const std::vector<Tensor> states = four.generator_state();
  const auto expected = draw(four);
  const std::vector<Tensor> later = four.generator_state();
  for (const int workers : {2, 4}) {
    const int local = 4 / workers;
    run_workers({.workers = workers, .replicas = local},
                [&](MultiWorkerMirroredStrategy& strategy) {
                  strategy.manual_seed(5);
                  strategy.set_generator_state(states);
                  const auto drawn = draw(strategy);
                  for (int i = 0; i < local; ++i) {
                    const int id = local * strategy.worker_index() + i;
                    EXPECT_TRUE(torch::equal(drawn[i], expected[id])) << id;
                  }
                  const std::vector<Tensor> all = strategy.generator_state();
                  ASSERT_EQ(all.size(), 4);
                  for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(torch::equal(all[i], later[i]));
                });
  }
}

TEST(RandomState, WorkersGiveTheSameSeed) {
  EXPECT_THAT(error_of<Mismatch>(Code::invalid_argument,
                                 [] {
                                   run_workers({.workers = 2}, [](auto& strategy) {
                                     strategy.manual_seed(
                                         static_cast<std::uint64_t>(7 + strategy.worker_index()));
                                   });
                                 }),
              AllOf(HasSubstr("manual_seed"), HasSubstr("seed 7"), HasSubstr("seed 8")));
}

TEST(RandomState, WhatIsRefused) {
  MirroredStrategy strategy(seeded(2, 1));
  const std::vector<Tensor> states = strategy.generator_state();
  EXPECT_THAT(wrong_value([&] { strategy.set_generator_state({states[0]}); }),
              AllOf(HasSubstr("1 states"), HasSubstr("2 replicas")));
  // The one that is right is not set, either.
  MirroredStrategy other(seeded(2, 3));
  EXPECT_THAT(wrong_value([&] {
                other.set_generator_state({states[0], torch::zeros({3}, torch::kByte)});
              }),
              HasSubstr("replica 1"));
  MirroredStrategy untouched(seeded(2, 3));
  EXPECT_TRUE(torch::equal(draw(other)[0], draw(untouched)[0]));
  const auto words = HasSubstr("merge_call()");
  strategy.run([&] {
    EXPECT_THAT(wrong_context([&] { strategy.manual_seed(1); }), words);
    EXPECT_THAT(wrong_context([&] { static_cast<void>(strategy.generator_state()); }), words);
    EXPECT_THAT(wrong_context([&] { strategy.set_generator_state(states); }), words);
  });
}

TEST(RandomState, InsideAMergeFunction) {
  MirroredStrategy strategy(seeded(2, 1));
  const std::vector<Tensor> states = strategy.generator_state();
  const auto drawn = strategy.run([&](ReplicaContext& replica) {
    const Tensor first = torch::rand({4});
    replica.merge_call([&](Strategy& s) { s.set_generator_state(states); });
    return torch::stack({first, torch::rand({4})});
  });
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(torch::equal(drawn[i][0], drawn[i][1])) << i;
}

TEST(RandomState, OfTheDefaultStrategyIsLibtorchs) {
  Strategy& strategy = get_strategy();
  strategy.manual_seed(4);
  const std::vector<Tensor> states = strategy.generator_state();
  const Tensor expected = torch::rand({4});
  EXPECT_TRUE(torch::equal(expected, torch::rand({4}, at::detail::createCPUGenerator(4))));
  strategy.set_generator_state(states);
  EXPECT_TRUE(torch::equal(expected, torch::rand({4})));
  wrong_value([&] { strategy.set_generator_state({torch::zeros({3}, torch::kByte)}); });
}

}  // namespace
}  // namespace lockstep
