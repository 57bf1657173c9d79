// The first steps of a training against those of one replica.
#include "lockstep/verify.h"

#include "lockstep/testing.h"
#include "tests/strategy/fixtures.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::run_workers;

Dataset<Tensor, batching::Global> rows() {
  return data::from_tensor_slices(torch::linspace(-1, 1, 30).view({10, 3})).batch(GlobalBatch{4});
}

torch::optim::AdamOptions adam() { return torch::optim::AdamOptions(0.1); }

Tensor right_step(ReplicaContext& replica, torch::nn::Linear& net, Optimizer& optimizer,
                  const Tensor& x) {
  const Tensor loss = net(x).pow(2).sum() / replica.global_batch_size();
  loss.backward();
  optimizer.apply(replica);
  return loss;
}

template <class Step>
void verify(Strategy& strategy, const Step& step) {
  const auto net = strategy.create<torch::nn::Linear>(3, 2);
  const auto optimizer = strategy.optimizer<torch::optim::Adam>(net, adam());
  const auto data = strategy.distribute(rows());
  const auto batches = data.iterate();
  verify_against_single(strategy, net, optimizer, step, *batches, {.steps = 3}, 3, 2);
  EXPECT_EQ(optimizer.iterations(), 3);
}

TEST(Verify, ASumOverRowsIsTheSame) {
  MirroredStrategy mirrored(cpus(2));
  verify(mirrored, right_step);
  run_workers({.workers = 2, .replicas = 2},
              [](MultiWorkerMirroredStrategy& strategy) { verify(strategy, right_step); });
}

TEST(Verify, AMeanOfOwnRowsIsFoundAndNamed) {
  MirroredStrategy mirrored(cpus(2));
  const auto wrong = [](ReplicaContext& replica, torch::nn::Linear& net, Optimizer& optimizer,
                        const Tensor& x) {
    const Tensor loss = net(x).pow(2).mean();
    loss.backward();
    optimizer.apply(replica);
    return loss;
  };
  const std::string message =
      error_of<Mismatch>(Code::invalid_argument, [&] { verify(mirrored, wrong); });
  EXPECT_THAT(message, HasSubstr("step 0: the loss differs"));
}

TEST(Verify, AWrongGradientIsNamed) {
  MirroredStrategy mirrored(cpus(2));
  const auto wrong = [](ReplicaContext& replica, torch::nn::Linear& net, Optimizer& optimizer,
                        const Tensor& x) {
    (net(x).pow(2).sum() / replica.global_batch_size() * (1 + replica.replica_id_in_sync_group()))
        .backward();
    optimizer.apply(replica);
  };
  const std::string message =
      error_of<Mismatch>(Code::invalid_argument, [&] { verify(mirrored, wrong); });
  EXPECT_THAT(message, HasSubstr("step 0: the gradient of weight differs"));
}

TEST(Verify, AfterAStepIsTooLate) {
  MirroredStrategy strategy(cpus(2));
  const auto net = strategy.create<torch::nn::Linear>(3, 2);
  const auto optimizer = strategy.optimizer<torch::optim::Adam>(net, adam());
  const auto data = strategy.distribute(rows());
  const auto batches = data.iterate();
  strategy.run(right_step, net, optimizer, batches->get_next());
  EXPECT_THAT(wrong_context([&] {
                verify_against_single(strategy, net, optimizer, right_step, *batches, {}, 3, 2);
              }),
              HasSubstr("before the first step"));
}

}  // namespace
}  // namespace lockstep
