// Batch normalisation over all replicas against torch's over all rows.
#include "lockstep/sync_batch_norm.h"

#include "lockstep/optimizer.h"
#include "lockstep/testing.h"
#include "strategy/core.h"
#include "tests/strategy/fixtures.h"

namespace lockstep {
namespace {

using testing::run_workers;

/// Rows of each of four replicas: uneven, one with none.
constexpr int kBegin[] = {0, 3, 3, 4};
constexpr int kCount[] = {3, 0, 1, 4};

template <class Plain, class Sync>
void expect_as_alone(const Tensor& all) {
  Plain alone(torch::nn::BatchNormOptions(3));
  Tensor x = all.clone().requires_grad_();
  const Tensor scale = torch::linspace(1, 2, all.numel()).view(all.sizes());
  const Tensor expected = alone->forward(x);
  (expected * scale).sum().backward();

  const auto check = [&](Strategy& strategy) {
    const auto scope = strategy.scope();
    const auto net = strategy.create<Sync>(torch::nn::BatchNormOptions(3));
    strategy.run(
        [&](ReplicaContext& replica, Sync& own) {
          const int id = replica.replica_id_in_sync_group();
          const auto part = [&](const Tensor& whole) {
            return whole.narrow(0, kBegin[id], kCount[id]);
          };
          const Tensor mine = part(all).clone().requires_grad_();
          const Tensor output = own->forward(mine);
          EXPECT_TRUE(torch::allclose(output, part(expected), 1e-4, 1e-5));
          (output * part(scale)).sum().backward();
          EXPECT_TRUE(torch::allclose(mine.grad(), part(x.grad()), 1e-3, 1e-4));
        },
        net);
    EXPECT_TRUE(torch::allclose(net[0]->running_mean, alone->running_mean, 1e-4, 1e-6));
    EXPECT_TRUE(torch::allclose(net[0]->running_var, alone->running_var, 1e-4, 1e-6));
  };
  MirroredStrategy mirrored(cpus(4));
  check(mirrored);
  run_workers({.workers = 2, .replicas = 2}, check);
}

TEST(SyncBatchNorm, OfRowsIsThatOfTheWholeBatch) {
  expect_as_alone<torch::nn::BatchNorm1d, SyncBatchNorm1d>(torch::randn({8, 3}) * 2 + 100);
}

TEST(SyncBatchNorm, OfImagesIsThatOfTheWholeBatch) {
  expect_as_alone<torch::nn::BatchNorm2d, SyncBatchNorm2d>(torch::randn({8, 3, 4, 5}));
}

/// 70,000 rows: more than f16 can count, and far more than bf16 can.
TEST(SyncBatchNorm, NarrowTypesAreAddedUpInThirtyTwoBits) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto net = strategy.create<SyncBatchNorm1d>(torch::nn::BatchNormOptions(2));
  for (const auto dtype : {torch::kHalf, torch::kBFloat16}) {
    strategy.run(
        [&](ReplicaContext& replica, SyncBatchNorm1d& own) {
          const int id = replica.replica_id_in_sync_group();
          const Tensor rows =
              torch::full({35'000, 2}, id == 0 ? 1.0 : 3.0).to(dtype).requires_grad_();
          const Tensor output = own->forward(rows);
          EXPECT_EQ(output.scalar_type(), dtype);
          output.pow(2).sum().backward();
          EXPECT_EQ(rows.grad().scalar_type(), dtype);
          EXPECT_TRUE(torch::isfinite(rows.grad()).all().item<bool>());
          const Tensor expected = torch::full({35'000, 2}, id == 0 ? -1.0 : 1.0);
          EXPECT_TRUE(torch::allclose(output.to(torch::kFloat), expected, 0, 0.01));
        },
        net);
  }
}

TEST(SyncBatchNorm, AnotherNumberOfFeaturesIsRefused) {
  SyncBatchNorm1d norm(torch::nn::BatchNormOptions(3));
  EXPECT_THAT(wrong_value([&] {
                norm->forward(torch::zeros({4, 1}));
              }),
              ::testing::HasSubstr("it has 3 features"));
}

// Case 132: batches without rows leave the statistics at 0 and 1; the loss is 0 and the output
// keeps its shape.
template <class Norm>
void expect_nothing_of_nothing() {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto net = strategy.create<Norm>(torch::nn::BatchNormOptions(3));
  const auto sgd = strategy.optimizer<torch::optim::SGD>(net, torch::optim::SGDOptions(0.1));
  const auto losses = strategy.run(
      [](ReplicaContext& replica, Norm& own, Optimizer& optimizer) {
        const Tensor output = own->forward(torch::zeros({0, 3}));
        EXPECT_EQ(output.sizes(), (std::vector<std::int64_t>{0, 3}));
        const Tensor loss = output.sum();
        loss.backward();
        optimizer.apply(replica);
        return loss.detach();
      },
      net, sgd);
  EXPECT_EQ(strategy.reduce(ReduceOp::sum, losses).template item<double>(), 0);
  EXPECT_EQ(numbers(net[0]->running_mean), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(numbers(net[0]->running_var), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(numbers(net[0]->weight), (std::vector<double>{1, 1, 1}));
}

TEST(SyncBatchNorm, Case132OfNoRowsAtAllChangesNothing) {
  expect_nothing_of_nothing<torch::nn::BatchNorm1d>();
  expect_nothing_of_nothing<SyncBatchNorm1d>();
}

TEST(SyncBatchNorm, WithoutAStrategyIsTheOrdinaryOne) {
  const Tensor x = torch::randn({6, 3});
  SyncBatchNorm1d sync(3);
  torch::nn::BatchNorm1d plain(3);
  EXPECT_TRUE(torch::allclose(sync->forward(x), plain->forward(x), 1e-4, 1e-5));
  sync->eval();
  plain->eval();
  EXPECT_TRUE(torch::allclose(sync->forward(x), plain->forward(x), 1e-4, 1e-5));
}

TEST(SyncBatchNorm, RefusesOtherDimensions) {
  SyncBatchNorm2d sync(3);
  EXPECT_THROW(sync->forward(torch::randn({2, 3})), InvalidUsage);
}

TEST(SyncBatchNorm, ACloneIsOneToo) {
  const SyncBatchNorm1d sync(3);
  const auto copy = std::dynamic_pointer_cast<SyncBatchNorm1dImpl>(sync->clone());
  ASSERT_NE(copy, nullptr);
  EXPECT_TRUE(copy->weight.equal(sync->weight));
}

struct WithNormImpl : torch::nn::Module {
  WithNormImpl() { register_module("norm", norm); }
  torch::nn::BatchNorm1d norm{2};
};
TORCH_MODULE(WithNorm);

TEST(ModelBuffers, AreTheReplicasOwnUntilTheyAreSynced) {
  const auto check = [](Strategy& strategy) {
    const auto scope = strategy.scope();
    const auto net = strategy.create<WithNorm>();
    const auto feed = [&] {
      strategy.run(
          [](ReplicaContext& replica, WithNorm& own) {
            own->norm(torch::ones({4, 2}) * (1.0 + replica.replica_id_in_sync_group()));
          },
          net);
    };
    feed();
    EXPECT_FALSE(net[0]->norm->running_mean.equal(net[1]->norm->running_mean));
    const int first = strategy.core().first_replica();
    EXPECT_NEAR(net[0]->norm->running_mean[0].item<double>(), 0.1 * (1 + first), 1e-6);
    net.sync_buffers(BufferSync::mean);
    EXPECT_NEAR(net[1]->norm->running_mean[0].item<double>(),
                0.1 * (1 + strategy.num_replicas_in_sync()) / 2, 1e-6);
    feed();
    net.sync_buffers();
    EXPECT_TRUE(net[0]->norm->running_mean.equal(net[1]->norm->running_mean));
  };
  MirroredStrategy mirrored(cpus(2));
  check(mirrored);
  run_workers({.workers = 2, .replicas = 2}, check);
}

}  // namespace
}  // namespace lockstep
