// What tune_process_memory() changes: one process for all of it, since it cannot be undone.
#include <c10/core/CPUAllocator.h>

#include "lockstep/process_memory.h"
#include "tests/strategy/malloc_probe.h"
#include "tests/train/optimizer_fixtures.h"
#include "train/optimizer_core.h"

namespace lockstep {
namespace {

class TunedProcess : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { tune_process_memory(); }
};

TEST_F(TunedProcess, HasAnotherAllocatorAndKeepsWhatIsFreed) {
  EXPECT_NE(c10::GetCPUAllocator(), c10::GetDefaultCPUAllocator());
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they allocate by themselves
  EXPECT_FALSE(malloc_maps_large_blocks());
#endif
  const c10::Allocator* const first = c10::GetCPUAllocator();
  tune_process_memory();
  EXPECT_EQ(c10::GetCPUAllocator(), first) << "twice is once";
}

TEST_F(TunedProcess, BlocksOfLargeGradientsAreKept) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const Variable large = trainable("large", torch::zeros({9, 1 << 20}));
  const Variable small = trainable("small", torch::zeros({1 << 10}));
  const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{large, small}, rate(1));
  const tensor::PlacedMemory& kept = *sgd.core().strategy().placed_memory();
  for (int i = 0; i < 2; ++i) {
    strategy.run(
        [&](ReplicaContext& replica, Optimizer& optimizer) {
          (torch::mv(large.read(), torch::ones({1 << 20})).sum() + small.read().sum()).backward();
          EXPECT_TRUE(kept.holds(large.read().grad()));
          EXPECT_FALSE(kept.holds(small.read().grad()));
          optimizer.apply(replica);
        },
        sgd);
  }
  EXPECT_TRUE(large.read().equal(torch::full({9, 1 << 20}, -4.0)));
}

/// Workers' gradients of 64 KiB and more lie where the others read them from the second step on.
/// What the step function makes by itself never does, whatever its size.
TEST_F(TunedProcess, LargeGradientsOfWorkersAreShared) {
  testing::run_workers({.workers = 2, .replicas = 2}, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const Variable w = trainable("w", torch::zeros({128, 256}));
    const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(1).momentum(0.5));
    const tensor::PlacedMemory& shared = *sgd.core().strategy().placed_memory();
    for (int i = 0; i < 3; ++i) {
      strategy.run(
          [&](ReplicaContext& replica, Optimizer& optimizer) {
            torch::mv(w.read(), torch::ones(256)).sum().backward();
            EXPECT_EQ(shared.holds(w.read().grad()), i > 0) << "step " << i;
            EXPECT_FALSE(shared.holds(w.read() * 2)) << "a forward pass";
            {
              const torch::NoGradGuard not_recorded;
              EXPECT_FALSE(shared.holds(w.read() * 2)) << "an evaluation";
              EXPECT_FALSE(shared.holds(w.read().detach().clone())) << "a copy that is kept";
            }
            optimizer.apply(replica);
          },
          sgd);
    }
    // Velocities 4, 6, 7 of four replicas.
    EXPECT_TRUE(w[0].equal(torch::full({128, 256}, -17.0)));
    for (const OptimizerVariable& state : sgd.variables()) {
      for (const Tensor& component : state.components) EXPECT_FALSE(shared.holds(component));
    }
  });
}

}  // namespace
}  // namespace lockstep
