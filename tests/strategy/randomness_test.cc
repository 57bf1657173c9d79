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

TEST(StepRandomness, AReplicasNumbersDoNotDependOnHowManyThereAre) {
  MirroredStrategy two(seeded(2, 7, Execution::concurrent));
  MirroredStrategy three(seeded(3, 7, Execution::concurrent));
  const auto rand = [] { return torch::rand({8}); };
  EXPECT_TRUE(torch::equal(two.run(rand)[1], three.run(rand)[1]));
}

}  // namespace
}  // namespace lockstep
