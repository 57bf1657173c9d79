// Random numbers in step functions: reproducible, the same in both executions, a replica's own.
#include "fixtures.h"

namespace lockstep {
namespace {

MirroredOptions seeded(int replicas, std::uint64_t seed, Execution execution) {
  MirroredOptions options = cpus(replicas, execution);
  options.replicas.seed = seed;
  return options;
}

/// Two steps of drawing with and without a meeting in between.
PerReplica<Tensor> draw(Strategy& strategy) {
  PerReplica<Tensor> last = strategy.run([] { return torch::rand({8}); });
  return strategy.run(
      [](ReplicaContext& replica, const Tensor& before) {
        const Tensor dropped = torch::dropout(torch::ones({64}), /*p=*/0.5, /*train=*/true);
        replica.all_reduce(ReduceOp::sum, dropped);
        return torch::cat(
            {before, dropped, torch::randn({8}), torch::randperm(8).to(torch::kFloat)});
      },
      last);
}

TEST(StepRandomness, IsReproducibleInBothExecutions) {
  MirroredStrategy concurrent(seeded(3, 7, Execution::concurrent));
  MirroredStrategy again(seeded(3, 7, Execution::concurrent));
  MirroredStrategy sequential(seeded(3, 7, Execution::sequential));
  MirroredStrategy other(seeded(3, 8, Execution::concurrent));
  const auto expected = draw(concurrent);
  const auto repeated = draw(again);
  const auto in_turn = draw(sequential);
  const auto differently = draw(other);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(torch::equal(expected[i], repeated[i])) << i;
    EXPECT_TRUE(torch::equal(expected[i], in_turn[i])) << i;
    EXPECT_FALSE(torch::equal(expected[i], differently[i])) << i;
    EXPECT_FALSE(torch::equal(expected[i], expected[(i + 1) % 3])) << i;
  }
  // Steps go on where the last one stopped.
  EXPECT_FALSE(torch::equal(draw(concurrent)[0], expected[0]));
}

TEST(StepRandomness, TheProcessWideGeneratorIsUntouched) {
  torch::manual_seed(3);
  const Tensor expected = torch::rand({4});
  torch::manual_seed(3);
  MirroredStrategy strategy(cpus(2));
  draw(strategy);
  OneDeviceStrategy one("CPU:0");
  draw(one);
  EXPECT_TRUE(torch::equal(torch::rand({4}), expected));
}

TEST(StepRandomness, TheDefaultSeedIsLibtorchs) {
  torch::manual_seed(11);
  MirroredStrategy first(cpus(2));
  torch::manual_seed(11);
  MirroredStrategy second(cpus(2));
  EXPECT_TRUE(torch::equal(draw(first)[1], draw(second)[1]));
}

TEST(StepRandomness, MergeFunctionsAndTheDefaultStrategyUseTheProcessWideOne) {
  torch::manual_seed(5);
  const Tensor expected = torch::rand({4});
  torch::manual_seed(5);
  MirroredStrategy strategy(cpus(2));
  auto drawn = strategy.run([](ReplicaContext& replica) {
    return replica.merge_call([](Strategy&) { return torch::rand({4}); });
  });
  EXPECT_TRUE(torch::equal(drawn.any(), expected));
  torch::manual_seed(5);
  EXPECT_TRUE(torch::equal(get_strategy().run([] { return torch::rand({4}); }).single(), expected));
}

/// What plain libtorch draws after manual_seed(seed).
Tensor drawn_after(std::uint64_t seed) {
  return torch::rand({8}, at::detail::createCPUGenerator(seed));
}

TEST(StepRandomness, ManualSeedInAStepSeedsTheReplica) {
  torch::manual_seed(3);
  const Tensor process_wide = at::detail::getDefaultCPUGenerator().get_state();
  for (const Execution execution : {Execution::concurrent, Execution::sequential}) {
    MirroredStrategy strategy(seeded(2, 7, execution));
    for (int step = 0; step < 20; ++step) {
      const auto drawn = strategy.run([](ReplicaContext& replica) {
        torch::manual_seed(100 + static_cast<std::uint64_t>(replica.replica_id_in_sync_group()));
        return torch::rand({8});
      });
      EXPECT_TRUE(torch::equal(drawn[0], drawn_after(100)));
      EXPECT_TRUE(torch::equal(drawn[1], drawn_after(101)));
    }
  }
  OneDeviceStrategy one("CPU:0");
  const auto drawn = one.run([] {
    torch::manual_seed(5);
    return torch::rand({8});
  });
  EXPECT_TRUE(torch::equal(drawn.single(), drawn_after(5)));
  EXPECT_TRUE(torch::equal(at::detail::getDefaultCPUGenerator().get_state(), process_wide));
}

TEST(StepRandomness, TheStateInAStepIsTheReplicas) {
  MirroredStrategy strategy(seeded(2, 7, Execution::concurrent));
  const auto pairs = strategy.run([] {
    at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
    torch::randn({3});  // an odd number leaves a cached one behind
    const Tensor state = generator.get_state();
    const Tensor first = torch::randn({5});
    generator.set_state(state);
    return torch::stack({first, torch::randn({5})});
  });
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(torch::equal(pairs[i][0], pairs[i][1])) << i;
  EXPECT_FALSE(torch::equal(pairs[0], pairs[1]));
}

TEST(StepRandomness, ManualSeedInAMergeFunctionIsProcessWide) {
  MirroredStrategy strategy(seeded(2, 7, Execution::concurrent));
  MirroredStrategy same(seeded(2, 7, Execution::concurrent));
  const auto drawn = strategy.run([](ReplicaContext& replica) {
    replica.merge_call([](Strategy&) { torch::manual_seed(9); });
    return torch::rand({8});
  });
  EXPECT_TRUE(torch::equal(drawn[1], same.run([] { return torch::rand({8}); })[1]));
  EXPECT_TRUE(torch::equal(torch::rand({8}), drawn_after(9)));
}

TEST(StepRandomness, AReplicasNumbersDoNotDependOnHowManyThereAre) {
  MirroredStrategy two(seeded(2, 7, Execution::concurrent));
  MirroredStrategy three(seeded(3, 7, Execution::concurrent));
  const auto rand = [] { return torch::rand({8}); };
  EXPECT_TRUE(torch::equal(two.run(rand)[1], three.run(rand)[1]));
}

}  // namespace
}  // namespace lockstep
