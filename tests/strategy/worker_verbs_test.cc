// What a program of several workers needs besides training: waiting for each other, the chief's
// value, texts of all, largest and smallest values.
#include <atomic>
#include <limits>

#include "lockstep/central_storage_strategy.h"
#include "lockstep/one_device_strategy.h"
#include "lockstep/testing.h"
#include "tests/strategy/fixtures.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::run_workers;

TEST(WorkerVerbs, EveryStrategyKnowsWhetherItIsTheChief) {
  const MirroredStrategy mirrored(cpus(2));
  const OneDeviceStrategy one("CPU:0");
  const Strategy& any = mirrored;
  EXPECT_TRUE(any.is_chief());
  EXPECT_TRUE(one.is_chief());
  EXPECT_TRUE(get_strategy().is_chief());
  run_workers({.workers = 3}, [](MultiWorkerMirroredStrategy& strategy) {
    const Strategy& base = strategy;
    EXPECT_EQ(base.is_chief(), strategy.worker_index() == 0);
    const auto scope = strategy.scope();
    EXPECT_EQ(get_strategy().is_chief(), strategy.worker_index() == 0);
  });
}

TEST(WorkerVerbs, ABarrierWaitsForAllWorkers) {
  std::atomic<int> arrived = 0;
  run_workers({.workers = 3}, [&](MultiWorkerMirroredStrategy& strategy) {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      strategy.barrier();
      EXPECT_GE(arrived.load(), 3 * round);
      strategy.barrier();
    }
  });
  MirroredStrategy alone(cpus(2));
  alone.barrier();
  EXPECT_THAT(wrong_value([&] { alone.barrier(std::chrono::seconds(-1)); }), HasSubstr("negative"));
}

TEST(WorkerVerbs, ABarrierThatIsNotReachedNamesWhoIsMissingAndWhere) {
  std::atomic<bool> over = false;
  run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    if (!strategy.is_chief()) {
      while (!over.load()) std::this_thread::yield();
      return;
    }
    const std::string message = error_of<Timeout>(
        Code::deadline_exceeded, [&] { strategy.barrier(std::chrono::milliseconds(50)); });
    over = true;
    EXPECT_THAT(message, HasSubstr("(barrier at worker_verbs_test.cc:"));
    EXPECT_THAT(message, HasSubstr("rank 1"));
  });
}

TEST(WorkerVerbs, TheChiefsValueIsEverybodys) {
  run_workers({.workers = 3}, [](MultiWorkerMirroredStrategy& strategy) {
    const int own = strategy.worker_index();
    // Another shape and type than the others have, and nothing at all.
    const Tensor given = own == 0   ? torch::arange(6, torch::kLong).view({2, 3})
                         : own == 1 ? torch::ones({5})
                                    : Tensor();
    const Tensor chiefs = strategy.from_chief(given);
    EXPECT_TRUE(chiefs.equal(torch::arange(6, torch::kLong).view({2, 3})));
    EXPECT_TRUE(strategy.from_chief(torch::full({}, 7.0 + own)).equal(torch::full({}, 7.0)));
    EXPECT_EQ(strategy.from_chief(torch::zeros({0, 4})).sizes(), (std::vector<std::int64_t>{0, 4}));
    const std::string text(static_cast<std::size_t>(own) * 10, 'x');
    EXPECT_EQ(strategy.from_chief(own == 0 ? std::string("run") : text), "run");
    EXPECT_EQ(strategy.from_chief(std::string("a\0b", own == 0 ? 3U : 1U)).size(), 3U);
    EXPECT_EQ(strategy.from_chief(own == 0 ? std::string() : "text"), "");
    EXPECT_EQ(strategy.from_chief(10 + own), 10);
    EXPECT_EQ(strategy.from_chief(0.1 + own), 0.1);
    EXPECT_EQ(strategy.from_chief(own == 0), true);
    EXPECT_EQ(strategy.from_chief(own == 0 ? std::numeric_limits<std::int64_t>::min() : 1),
              std::numeric_limits<std::int64_t>::min());
  });
}

TEST(WorkerVerbs, AnUndefinedTensorOfTheChiefIsEverybodysError) {
  std::atomic<int> refused = 0;
  run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    EXPECT_THAT(
        wrong_value([&] {
          static_cast<void>(strategy.from_chief(strategy.is_chief() ? Tensor() : torch::ones({1})));
        }),
        HasSubstr("the chief's tensor is undefined"));
    ++refused;
    strategy.barrier();  // and the group goes on
  });
  EXPECT_EQ(refused, 2);
}

TEST(WorkerVerbs, AloneTheChiefsValueIsTheOwn) {
  MirroredStrategy strategy(cpus(2));
  const Tensor own = torch::ones({2}).requires_grad_();
  const Tensor same = strategy.from_chief(own);
  EXPECT_TRUE(same.equal(own));
  EXPECT_FALSE(same.is_alias_of(own));
  EXPECT_EQ(strategy.from_chief(std::string("text")), "text");
  EXPECT_EQ(strategy.from_chief(3), 3);
  EXPECT_THAT(wrong_value([&] { static_cast<void>(strategy.from_chief(Tensor())); }),
              HasSubstr("undefined"));
}

TEST(WorkerVerbs, TextsOfAllWorkersAreGatheredInTheirOrder) {
  run_workers({.workers = 3, .replicas = 2}, [](MultiWorkerMirroredStrategy& strategy) {
    const int own = strategy.worker_index();
    EXPECT_THAT(strategy.gather("worker " + std::to_string(own)),
                ElementsAre("worker 0", "worker 1", "worker 2"));
    // As many as each has.
    const std::vector<std::string> several(static_cast<std::size_t>(own), std::to_string(own));
    EXPECT_THAT(strategy.gather(several), ElementsAre("1", "2", "2"));
    EXPECT_THAT(strategy.gather(std::vector<std::string>()), IsEmpty());
    EXPECT_THAT(strategy.gather(std::string(own == 1 ? "a\0b" : "", own == 1 ? 3U : 0U)),
                ElementsAre("", std::string("a\0b", 3), ""));
    const PerReplica<std::string> names = strategy.run([](ReplicaContext& replica) {
      return "replica " + std::to_string(replica.replica_id_in_sync_group());
    });
    EXPECT_THAT(strategy.gather(names), ElementsAre("replica 0", "replica 1", "replica 2",
                                                    "replica 3", "replica 4", "replica 5"));
  });
  MirroredStrategy alone(cpus(2));
  EXPECT_THAT(alone.gather(std::string("me")), ElementsAre("me"));
}

// --- The largest and the smallest. ------------------------------------------------------------

template <class F>
void on_every_kind_of_strategy(F&& check) {
  MirroredStrategy mirrored(cpus(4));
  MirroredOptions by_copies = cpus(4);
  by_copies.cross_device_ops = std::make_shared<HierarchicalCopyAllReduce>();
  MirroredStrategy copying(by_copies);
  check(mirrored);
  check(copying);
  for (const auto& [workers, replicas] : {std::pair(2, 2), std::pair(4, 1)}) {
    run_workers({.workers = workers, .replicas = replicas},
                [&](MultiWorkerMirroredStrategy& strategy) { check(strategy); });
  }
}

TEST(WorkerVerbs, LargestAndSmallestOfFourReplicas) {
  on_every_kind_of_strategy([](Strategy& strategy) {
    const auto scope = strategy.scope();
    const auto each = strategy.run([](ReplicaContext& replica) {
      const double id = replica.replica_id_in_sync_group();
      return torch::tensor({id, -id, 1.0});
    });
    EXPECT_EQ(numbers(strategy.reduce(ReduceOp::max, each)), (std::vector<double>{3, 0, 1}));
    EXPECT_EQ(numbers(strategy.reduce("min", each)), (std::vector<double>{0, -3, 1}));
    const auto counts = strategy.run(
        [](ReplicaContext& replica) { return 10 - replica.replica_id_in_sync_group(); });
    EXPECT_EQ(strategy.reduce(ReduceOp::max, counts).item<int>(), 10);
    const auto flags = strategy.run(
        [](ReplicaContext& replica) { return replica.replica_id_in_sync_group() == 2; });
    EXPECT_TRUE(strategy.reduce(ReduceOp::max, flags).item<bool>());
    EXPECT_FALSE(strategy.reduce(ReduceOp::min, flags).item<bool>());
    const auto to = strategy.reduce_to(ReduceOp::max, each, Destinations("CPU:0"));
    EXPECT_EQ(numbers(to.any()), (std::vector<double>{3, 0, 1}));
  });
}

TEST(WorkerVerbs, AlongAnAxisAReplicaWithoutRowsHasNoSay) {
  on_every_kind_of_strategy([](Strategy& strategy) {
    const auto scope = strategy.scope();
    for (const auto dtype : {torch::kFloat, torch::kLong, torch::kByte}) {
      const auto each = strategy.run([&](ReplicaContext& replica) {
        const int id = replica.replica_id_in_sync_group();
        return torch::full({id, 2}, 5 + id, dtype);  // replica 0 has none
      });
      EXPECT_EQ(numbers(strategy.reduce(ReduceOp::max, each, along(0))),
                (std::vector<double>{8, 8}));
      EXPECT_EQ(numbers(strategy.reduce(ReduceOp::min, each, along(0))),
                (std::vector<double>{6, 6}));
    }
  });
}

TEST(WorkerVerbs, ANanIsNotLost) {
  on_every_kind_of_strategy([](Strategy& strategy) {
    const auto scope = strategy.scope();
    const auto each = strategy.run([](ReplicaContext& replica) {
      return torch::full({2}, replica.replica_id_in_sync_group() == 1 ? std::nan("") : 1.0);
    });
    EXPECT_TRUE(strategy.reduce(ReduceOp::max, each).isnan().all().item<bool>());
  });
}

TEST(WorkerVerbs, AllReplicasAgreeOnTheLargest) {
  on_every_kind_of_strategy([](Strategy& strategy) {
    strategy.run([](ReplicaContext& replica) {
      const Tensor own = torch::full({2}, 1.0 * replica.replica_id_in_sync_group());
      EXPECT_EQ(numbers(replica.all_reduce(ReduceOp::max, own)), (std::vector<double>{3, 3}));
      EXPECT_EQ(numbers(replica.all_reduce(ReduceOp::min, own)), (std::vector<double>{0, 0}));
    });
  });
  MirroredStrategy strategy(cpus(2));
  const std::string message = error_of<Unsupported>(Code::unimplemented, [&] {
    strategy.run([](ReplicaContext& replica) {
      static_cast<void>(replica.all_reduce(ReduceOp::max, torch::ones({1}).requires_grad_() * 2));
    });
  });
  EXPECT_THAT(message, HasSubstr("detach()"));
}

TEST(WorkerVerbs, LargestOfPlainValuesIsThatOfAllWorkers) {
  run_workers({.workers = 2, .replicas = 2}, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const double own = 1.0 + strategy.worker_index();
    EXPECT_EQ(number(strategy.reduce(ReduceOp::max, torch::full({}, own))), 2);
    EXPECT_EQ(number(strategy.reduce(ReduceOp::min, own)), 1);
  });
  MirroredStrategy alone(cpus(2));
  EXPECT_EQ(number(alone.reduce(ReduceOp::max, 5.0)), 5);
}

TEST(WorkerVerbs, WhatHasNoLargestIsRefused) {
  MirroredStrategy strategy(cpus(2));
  const auto sparse = strategy.run([] { return torch::eye(2).to_sparse(); });
  EXPECT_THAT(
      error_of<Unsupported>(Code::unimplemented, [&] { strategy.reduce(ReduceOp::max, sparse); }),
      HasSubstr("to_dense()"));
  const auto complex = strategy.run([] { return torch::ones({1}, torch::kComplexFloat); });
  EXPECT_THAT(wrong_value([&] { strategy.reduce(ReduceOp::max, complex); }), HasSubstr("complex"));
  const auto scope = strategy.scope();
  EXPECT_THAT(wrong_value([&] { const auto s = strategy.tower_local_var_scope(ReduceOp::max); }),
              HasSubstr("MAX"));
}

// --- Values that are not distributed, many at once. --------------------------------------------

TEST(WorkerVerbs, ManyPlainValuesAtOnceAreReducedAsOneIs) {
  run_workers({.workers = 2, .replicas = 2}, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const Tensor own = torch::full({2}, 1.0 + strategy.worker_index());
    const auto each = strategy.run([] { return torch::ones({1}); });
    const std::vector<ReducePair> pairs = {{own, Destinations("CPU:0")},
                                           {each, Destinations(DeviceList{"CPU:0", "CPU:1"})},
                                           {own, Destinations("CPU:1")}};
    const auto sums = strategy.batch_reduce_to(ReduceOp::sum, pairs);
    ASSERT_EQ(sums.size(), 3U);
    EXPECT_EQ(numbers(sums[0].any()), (std::vector<double>{3, 3}));
    EXPECT_EQ(numbers(sums[1][1]), std::vector<double>{4});
    EXPECT_EQ(numbers(sums[2].any()), (std::vector<double>{3, 3}));
    EXPECT_EQ(numbers(strategy.reduce_to(ReduceOp::sum, own, Destinations("CPU:0")).any()),
              numbers(sums[0].any()));
    EXPECT_EQ(numbers(strategy.batch_reduce_to(ReduceOp::mean, pairs)[0].any()),
              (std::vector<double>{1.5, 1.5}));
  });
}

}  // namespace
}  // namespace lockstep
