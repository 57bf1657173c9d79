// Several threads of the caller run steps of one strategy: the steps take turns.
#include <atomic>
#include <chrono>
#include <thread>

#include "run_fixtures.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

TEST_P(RunTest, TwoThreadsTakeTurns) {
  std::vector<int> sums(2);
  const auto work = [&](std::size_t which) {
    for (int i = 0; i < 50; ++i) {
      auto out = strategy.run(
          [](ReplicaContext& replica, int x) {
            return number(replica.all_reduce(ReduceOp::sum, torch::full({}, x + replica_id())));
          },
          i);
      sums[which] += static_cast<int>(out[1]);
    }
  };
  std::thread other([&] { work(1); });
  work(0);
  other.join();
  EXPECT_THAT(sums, ElementsAre(2500, 2500));
}

/// Runs steps of the strategy on two threads. True if two steps ever overlapped.
bool steps_meet(Strategy& strategy) {
  std::atomic<int> inside = 0;
  std::atomic<bool> met = false;
  const auto work = [&] {
    for (int i = 0; i < 50; ++i) {
      strategy.run([&] {
        if (++inside > 1) met = true;
        for (int k = 0; k < 100 && !met; ++k) std::this_thread::yield();
        --inside;
      });
    }
  };
  std::thread other(work);
  work();
  other.join();
  return met;
}

TEST(Run, OneReplicaTakesTurnsToo) {
  MirroredStrategy mirrored(cpus(1));
  EXPECT_FALSE(steps_meet(mirrored));
  OneDeviceStrategy one("CPU:0");
  EXPECT_FALSE(steps_meet(one));
}

// A net that two threads train in turn: the steps of both count.
TEST(Run, TwoThreadsTrainOnOneReplica) {
  OneDeviceStrategy strategy("CPU:0");
  auto scope = strategy.scope();
  const Variable w = variable("w", torch::zeros({64}), {.trainable = true});
  scope.exit();
  const auto work = [&] {
    for (int i = 0; i < 200; ++i) {
      strategy.run([&](ReplicaContext& replica) {
        Tensor own = w.read();
        own.mutable_grad() = Tensor();
        (own * 1.0).sum().backward();
        ASSERT_EQ(number(own.grad().sum()), 64);
        replica.merge_call([&](Strategy& s) {
          s.update(w, [](Component& copy) { copy.assign_add(copy.grad()); });
        });
      });
    }
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_EQ(number(w.read().sum()), 64 * 400);
}

TEST(Run, TheDefaultStrategyIsConcurrent) {
  std::atomic<int> inside = 0;
  const auto step = [&] {
    get_strategy().run([&] {
      ++inside;
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (inside < 2 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    });
  };
  std::thread other(step);
  step();
  other.join();
  EXPECT_EQ(inside, 2);
}

}  // namespace
}  // namespace lockstep
