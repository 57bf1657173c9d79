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

/// Calls first(body) on this thread and second(body) on another, again and again. True if two
/// bodies ever overlapped.
template <class First, class Second>
bool meet(const First& first, const Second& second) {
  std::atomic<int> inside = 0;
  std::atomic<bool> met = false;
  const auto body = [&] {
    if (++inside > 1) met = true;
    for (int k = 0; k < 100 && !met; ++k) std::this_thread::yield();
    --inside;
  };
  std::thread other([&] {
    for (int i = 0; i < 50; ++i) second(body);
  });
  for (int i = 0; i < 50; ++i) first(body);
  other.join();
  return met;
}

TEST(Run, OneReplicaTakesTurnsToo) {
  const auto steps_meet = [](Strategy& strategy) {
    const auto run = [&](const auto& body) { strategy.run(body); };
    return meet(run, run);
  };
  MirroredStrategy mirrored(cpus(1));
  EXPECT_FALSE(steps_meet(mirrored));
  OneDeviceStrategy one("CPU:0");
  EXPECT_FALSE(steps_meet(one));
}

/// A copy is written to in nobody else's run, update or reduction: of one copy as of several.
TEST(Update, TakesTurnsWithRunsAndUpdatesOfOtherThreads) {
  const auto check = [](Strategy& strategy) {
    auto scope = strategy.scope();
    const Variable v = variable("v", 0.0);
    scope.exit();
    // One replica, one copy: those of one call are served at the same time.
    const auto run = [&](const auto& body) {
      strategy.run([&](ReplicaContext& replica) {
        if (replica.replica_id_in_sync_group() == 0) body();
      });
    };
    const auto update = [&](const auto& body) {
      strategy.update(v, [&](Component& copy) {
        if (copy.index() == 0) body();
      });
    };
    const auto update_non_slot = [&](const auto& body) {
      std::atomic<int> calls = 0;
      strategy.update_non_slot(strategy.non_slot_devices({v}), [&] {
        if (calls++ == 0) body();
      });
    };
    EXPECT_FALSE(meet(update, update));
    EXPECT_FALSE(meet(update, run));
    EXPECT_FALSE(meet(update_non_slot, run));
    EXPECT_FALSE(meet(update, update_non_slot));
  };
  OneDeviceStrategy one("CPU:0");
  check(one);
  MirroredStrategy two(cpus(2));
  check(two);
  CentralStorageStrategy central(
      {.compute_devices = {"CPU:0", "CPU:1"}, .parameter_device = "CPU:0"});
  check(central);
}

TEST(Update, AssignmentsOfTwoThreadsAllCount) {
  OneDeviceStrategy strategy("CPU:0");
  auto scope = strategy.scope();
  const Variable v = variable("v", torch::zeros({1 << 14}));
  scope.exit();
  const Tensor ones = torch::ones({1 << 14});
  const auto work = [&] {
    for (int i = 0; i < 200; ++i) v.assign_add(ones);
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_EQ(number(v.read().min()), 400);
  EXPECT_EQ(number(v.read().max()), 400);
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

struct WithBufferImpl : torch::nn::Module {
  WithBufferImpl() {
    weight = register_parameter("weight", torch::zeros({64}));
    seen = register_buffer("seen", torch::zeros({64}));
  }
  Tensor weight;
  Tensor seen;
};
TORCH_MODULE(WithBuffer);

/// What a step writes to its copy of a net stays until the step is over.
TEST(Model, CopiesAreMadeEqualBetweenTheStepsOfOtherThreads) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto net = strategy.create<WithBuffer>();
  std::atomic<bool> overwritten = false;
  std::atomic<bool> done = false;
  const auto step = [&](ReplicaContext& replica, WithBuffer& own) {
    const torch::NoGradGuard not_recorded;
    const int mine = 1 + replica.replica_id_in_sync_group();
    own->weight.fill_(mine);
    own->seen.fill_(mine);
    for (int k = 0; k < 100; ++k) std::this_thread::yield();
    if (number(own->weight.min()) != mine || number(own->weight.max()) != mine ||
        number(own->seen.min()) != mine || number(own->seen.max()) != mine) {
      overwritten = true;
    }
  };
  std::thread other([&] {
    while (!done) {
      net.sync_parameters();
      net.sync_buffers();
      net.sync_buffers(BufferSync::mean);
    }
  });
  for (int i = 0; i < 50; ++i) strategy.run(step, net);
  done = true;
  other.join();
  EXPECT_FALSE(overwritten);
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
