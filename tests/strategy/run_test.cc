// run() and merge_call(): what arrives at the replicas, what comes back, what goes wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <stdexcept>
#include <thread>

#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

MirroredOptions two(Execution execution) {
  MirroredOptions options;
  options.devices = {"CPU:0", "CPU:1"};
  options.replicas.execution = execution;
  return options;
}

class RunTest : public ::testing::TestWithParam<Execution> {
 protected:
  MirroredStrategy strategy{two(GetParam())};
};

TEST_P(RunTest, Case16ResultsOfOneRunAreArgumentsOfTheNext) {
  auto out1 = strategy.run([](ReplicaContext& r) { return r.replica_id_in_sync_group() + 1; });
  EXPECT_THAT(local_results(out1), ElementsAre(1, 2));
  auto out2 = strategy.run(
      [](int x) {
        return std::map<std::string, int>{{"a", 2 * x}, {"b", x * x}};
      },
      out1);
  EXPECT_THAT(local_results(out2.at("a")), ElementsAre(2, 4));
  EXPECT_THAT(local_results(out2.at("b")), ElementsAre(1, 4));
  auto out3 = strategy.run([](int b, int a) { return a + 2 * b + 2; }, out2.at("b"), out2.at("a"));
  EXPECT_THAT(local_results(out3), ElementsAre(6, 14));
}

TEST_P(RunTest, MergeCallMeetsAllReplicas) {
  auto out = strategy.run(
      [](ReplicaContext& replica, int three) {
        const int v = three + replica.replica_id_in_sync_group();
        const int s = replica.merge_call(
            [](Strategy&, const PerReplica<int>& each) { return each[0] + each[1]; }, v);
        return s + v;
      },
      3);
  EXPECT_THAT(local_results(out), ElementsAre(10, 11));
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

TEST_P(RunTest, ExceptionsKeepTheirType) {
  EXPECT_THROW(strategy.run([](ReplicaContext& replica) {
    if (replica.replica_id_in_sync_group() == 1) throw std::out_of_range("x");
    replica.merge_call([](Strategy&) {});
  }),
               std::out_of_range);
  EXPECT_THROW(strategy.run([](ReplicaContext& replica) {
    replica.merge_call([](Strategy&) { throw std::domain_error("m"); });
  }),
               std::domain_error);
  EXPECT_FALSE(has_strategy());
}

TEST_P(RunTest, UnequalMergeCallsAreATable) {
  try {
    strategy.run([](ReplicaContext& replica) {
      if (replica.replica_id_in_sync_group() == 1) replica.merge_call([](Strategy&) {});
    });
    FAIL();
  } catch (const InvalidUsage& e) {
    EXPECT_THAT(e.what(), HasSubstr("different numbers of merge calls"));
    EXPECT_THAT(e.what(), HasSubstr("run_test.cc"));
  }
}

INSTANTIATE_TEST_SUITE_P(Executions, RunTest,
                         ::testing::Values(Execution::concurrent, Execution::sequential));

TEST(Variables, MirroredAssign) {
  MirroredStrategy strategy(two(Execution::concurrent));
  auto scope = strategy.scope();
  auto v = variable("v", 1.0, {.aggregation = Aggregation::sum});
  v.assign_add(6);
  EXPECT_EQ(v.read().item<float>(), 7);
  strategy.run([&](ReplicaContext&) { v.assign(torch::full({}, 2.0F)); });
  EXPECT_EQ(v[0].item<float>(), 4);
  EXPECT_EQ(v[1].item<float>(), 4);
  auto result = strategy.update(
      v,
      [](Component& c, const Tensor& x) {
        c.assign(x);
        return 1;
      },
      strategy.broadcast(torch::ones({})));
  EXPECT_EQ((v + 1).item<float>(), 2);
}

TEST(Models, AreEqual) {
  MirroredStrategy strategy(two(Execution::concurrent));
  auto net = create<torch::nn::Linear>(strategy, 3, 2);
  EXPECT_TRUE(torch::equal(net[0]->weight, net[1]->weight));
  auto out =
      strategy.run([](torch::nn::Linear& own, const Tensor& x) { return own->forward(x).sum(); },
                   net, torch::ones({4, 3}));
  EXPECT_EQ(out[0].item<float>(), out[1].item<float>());
}

}  // namespace
}  // namespace lockstep
