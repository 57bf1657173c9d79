// merge_call(): where the merge function runs, what it is given, and what each replica gets back.
#include <cmath>
#include <thread>

#include "run_fixtures.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

TEST_P(RunTest, MergeCallMeetsAllReplicas) {
  auto out = strategy.run(
      [](ReplicaContext& replica, int three_more) {
        const int v = three_more + replica.replica_id_in_sync_group();
        const int s = replica.merge_call(
            [](Strategy&, const PerReplica<int>& each) { return each[0] + each[1]; }, v);
        return s + v;
      },
      3);
  EXPECT_THAT(local_results(out), ElementsAre(10, 11));
}

TEST_P(RunTest, TheMergeFunctionRunsOnceOnTheCallersThread) {
  const auto caller = std::this_thread::get_id();
  int calls = 0;
  three.run([&](ReplicaContext& replica) {
    for (int i = 0; i < 4; ++i) {
      replica.merge_call([&](Strategy& s) {
        ++calls;
        EXPECT_EQ(std::this_thread::get_id(), caller);
        EXPECT_TRUE(in_cross_replica_context());
        EXPECT_EQ(&s, &three);
        EXPECT_EQ(&get_strategy(), &three);
        EXPECT_EQ(current_device(), "");
      });
      EXPECT_EQ(get_replica_context(), &replica);
    }
  });
  EXPECT_EQ(calls, 4);
}

TEST_P(RunTest, WhatComesBackFromAMerge) {
  strategy.run([&](ReplicaContext& replica) {
    const int id = replica_id();
    // A per-replica result: this replica's own.
    EXPECT_EQ(replica.merge_call([](const PerReplica<int>& each) { return each; }, 5 * id), 5 * id);
    // A mirrored one: agreed.
    const Agreed<Tensor> sum = replica.merge_call(
        [](Strategy& s, const PerReplica<Tensor>& each) {
          return s.reduce_to(ReduceOp::sum, each, each);
        },
        torch::full({}, id + 1.0));
    EXPECT_EQ(number(sum), 3);
    // An agreed argument arrives mirrored, several arguments in their order, nothing goes back.
    replica.merge_call(
        [](Strategy&, const Mirrored<Tensor>& agreed, const std::vector<PerReplica<int>>& list,
           const PerReplica<std::string>& words) {
          EXPECT_EQ(number(agreed.any()), 3);
          EXPECT_THAT(local_results(list.at(1)), ElementsAre(10, 11));
          EXPECT_THAT(local_results(words), ElementsAre("r0", "r1"));
        },
        sum, std::vector{id, 10 + id}, "r" + std::to_string(id));
  });
}

TEST_P(RunTest, Case18AllReduceIsDifferentiable) {
  for (const auto& [op, expected] : {std::pair(ReduceOp::sum, 4.0F), {ReduceOp::mean, 2.0F}}) {
    auto out = strategy.run([op = op](ReplicaContext& replica) {
      torch::Tensor x = torch::ones({}, torch::requires_grad());
      const double c = replica.replica_id_in_sync_group() == 0 ? 1 : 3;
      torch::Tensor y = replica.all_reduce(op, x) * c;
      return torch::autograd::grad({y}, {x})[0];
    });
    EXPECT_EQ(out[0].item<float>(), expected);
    EXPECT_EQ(out[1].item<float>(), expected);
  }
}

// What a replica does to its result in place is its own affair.
TEST_P(RunTest, AMergedTensorIsTheReplicasOwn) {
  struct Pair {
    Tensor a, b;
    static auto lockstep_members() { return std::tuple(&Pair::a, &Pair::b); }
  };
  three.run([](ReplicaContext& replica) {
    const Tensor x = torch::full({}, 1.0 + replica_id());
    const auto add_id = [&](const Tensor& mine) { mine.add_(10 * replica_id()); };
    const auto expect_own = [&](const Tensor& mine, double merged) {
      replica.merge_call([](Strategy&) {});  // all have added
      EXPECT_EQ(number(mine), merged + 10 * replica_id());
    };
    const Tensor plain = replica.merge_call(
        [](Strategy& s, const PerReplica<Tensor>& each) { return s.reduce(ReduceOp::sum, each); },
        x);
    add_id(plain);
    expect_own(plain, 6);
    // Another replica's argument, in containers and structs.
    const auto list = replica.merge_call(
        [](const PerReplica<Tensor>& each) {
          return std::vector<std::pair<int, Tensor>>{{7, each[1]}};
        },
        x);
    EXPECT_EQ(list.at(0).first, 7);
    add_id(list.at(0).second);
    expect_own(list.at(0).second, 2);
    const Pair pair = replica.merge_call(
        [](const PerReplica<Tensor>& each) {
          return Pair{each[0], Tensor()};
        },
        x);
    add_id(pair.a);
    expect_own(pair.a, 1);
    EXPECT_FALSE(pair.b.defined());
    // A mirrored result with fewer components than there are replicas.
    const Tensor on_one = replica.merge_call(
        [](Strategy& s, const PerReplica<Tensor>& each) {
          return s.reduce_to(ReduceOp::sum, each, "CPU:0");
        },
        x);
    add_id(on_one);
    expect_own(on_one, 6);
    EXPECT_EQ(number(x), 1 + replica_id());
  });
}

TEST_P(RunTest, AMergedTensorKeepsItsGraph) {
  const Tensor w = torch::ones({}, torch::requires_grad());
  strategy.run([&](ReplicaContext& replica) {
    const Tensor doubled = replica.merge_call([&](Strategy&) { return w * 2; });
    EXPECT_TRUE(doubled.requires_grad());
    replica.merge_call(
        [](Strategy&, const PerReplica<Tensor>& each) { (each[0] + each[1]).backward(); }, doubled);
  });
  EXPECT_EQ(number(w.grad()), 4);
}

TEST_P(RunTest, ResultsOfOneReplicaAreNotItsInput) {
  const auto check = [](ReplicaContext& replica) {
    for (const bool recorded : {false, true}) {
      const Tensor x = torch::ones({2}, torch::requires_grad(recorded));
      const Tensor before = x.detach().clone();
      const at::NoGradGuard in_place;
      replica.all_reduce(ReduceOp::sum, x).add_(1);
      replica.all_reduce(ReduceOp::mean, std::vector{x}).at(0).add_(1);
      replica.all_gather(x).add_(1);
      const Tensor merged = replica.merge_call(
          [](Strategy& s, const PerReplica<Tensor>& each) { return s.reduce(ReduceOp::sum, each); },
          x);
      merged.add_(1);
      EXPECT_TRUE(x.equal(before));
    }
    const Tensor sparse = torch::eye(2).to_sparse();
    const Tensor sum = replica.all_reduce(ReduceOp::sum, sparse);
    sum._values().add_(1);
    EXPECT_TRUE(sparse.to_dense().equal(torch::eye(2)));
    const Tensor x = torch::ones({2}, torch::requires_grad());
    Tensor y = replica.all_reduce(ReduceOp::sum, x);
    y.mul_(3);
    y.sum().backward();
    EXPECT_THAT(numbers(x), ElementsAre(1, 1));
    EXPECT_THAT(numbers(x.grad()), ElementsAre(3, 3));
  };
  MirroredStrategy one(cpus(1, GetParam()));
  one.run(check);
  check(*get_replica_context());  // without a strategy
}

TEST_P(RunTest, AllReduceOfNests) {
  strategy.run([](ReplicaContext& replica) {
    const double id = replica_id();
    const auto sums = replica.all_reduce(
        "sum", std::pair(torch::full({2}, id), std::vector{torch::full({}, 10 + id)}));
    EXPECT_THAT(numbers(sums.first), ElementsAre(1, 1));
    EXPECT_EQ(number(sums.second.at(0)), 21);
  });
}

TEST_P(RunTest, NestedRunsInMergeFunctions) {
  auto out = three.run([&](ReplicaContext& replica) {
    const int own = replica_id() + 1;
    return static_cast<int>(replica.merge_call(
        [](Strategy& s, const PerReplica<int>& each) {
          // A fresh set of replicas, with meetings and a run of their own.
          auto inner = s.run(
              [](ReplicaContext& in, int x) {
                return static_cast<int>(in.merge_call(
                    [](Strategy& deep, const PerReplica<int>& values) {
                      auto doubled = deep.run([](int v) { return 2 * v; }, values);
                      return static_cast<int>(number(deep.reduce(ReduceOp::sum, doubled)));
                    },
                    x));
              },
              each);
          EXPECT_THAT(local_results(inner), ElementsAre(12, 12, 12));
          return inner[2];
        },
        own));
  });
  EXPECT_THAT(local_results(out), ElementsAre(12, 12, 12));
}

TEST_P(RunTest, AMergeFunctionMayCatchWhatANestedRunThrows) {
  auto out = strategy.run([](ReplicaContext& replica) {
    replica.merge_call([](Strategy& s) {
      EXPECT_THROW(s.run([](ReplicaContext& inner) {
        if (replica_id() == 1) throw Planted("inner");
        inner.merge_call([](Strategy&) {});
      }),
                   Planted);
      EXPECT_TRUE(in_cross_replica_context());
    });
    replica.merge_call([](Strategy&) {});
    return replica_id();
  });
  EXPECT_THAT(local_results(out), ElementsAre(0, 1));
}

TEST(Run, ManyReplicas) {
  MirroredStrategy strategy(cpus(9));
  auto out = strategy.run([](ReplicaContext& replica) {
    double sum = 0;
    for (int i = 0; i < 20; ++i) {
      sum = number(replica.all_reduce(ReduceOp::sum, torch::full({}, sum + replica_id())));
      sum = std::fmod(sum, 1000);
    }
    return sum;
  });
  for (int i = 1; i < 9; ++i) EXPECT_EQ(out[i], out[0]);
}

}  // namespace
}  // namespace lockstep
