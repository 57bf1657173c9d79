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

TEST(Verify, ADisagreementOfWorkersNamesTheLineOfItsOptions) {
  std::string message;
  int line = 0;
  try {
    run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
      const auto net = strategy.create<torch::nn::Linear>(3, 2);
      const auto optimizer = strategy.optimizer<torch::optim::Adam>(net, adam());
      const auto data = strategy.distribute(rows());
      const auto batches = data.iterate();
      if (strategy.is_chief()) {
        line = __LINE__ + 1;
        const VerifyOptions options{.steps = 1};
        verify_against_single(strategy, net, optimizer, right_step, *batches, options, 3, 2);
      } else {
        static_cast<void>(batches->get_next());
        strategy.barrier();
      }
    });
  } catch (const Mismatch& error) {
    message = error.what();
  }
  EXPECT_THAT(message,
              HasSubstr("rank 0: gather float32[2, 3] at verify_test.cc:" + std::to_string(line)));
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

/// A layer that is to be frozen, one that is to be in evaluation, and one that trains.
struct MixedImpl : torch::nn::Module {
  MixedImpl() {
    register_module("frozen", frozen);
    register_module("dropout", dropout);
    register_module("output", output);
  }
  Tensor forward(const Tensor& x) { return output(dropout(frozen(x))); }
  torch::nn::Linear frozen{3, 4};
  torch::nn::Dropout dropout{0.5};
  torch::nn::Linear output{4, 2};
};
TORCH_MODULE(Mixed);

Tensor mixed_step(ReplicaContext& replica, Mixed& net, Optimizer& optimizer, const Tensor& x) {
  const Tensor loss = net(x).pow(2).sum() / replica.global_batch_size();
  loss.backward();
  optimizer.apply(replica);
  return loss;
}

// What a program does between create and the first step is done to the single replica, too.
TEST(Verify, WhatWasSetAfterCreateCounts) {
  MirroredStrategy strategy(cpus(2));
  const auto net = strategy.create<Mixed>();
  for (int i = 0; i < net.size(); ++i) {
    for (const Tensor& parameter : net[i]->frozen->parameters()) parameter.requires_grad_(false);
    net[i]->dropout->eval();
  }
  const auto optimizer =
      strategy.optimizer<torch::optim::SGD>(net, torch::optim::SGDOptions(0.1).momentum(0.9));
  optimizer.set_learning_rate(0.5);
  const auto data = strategy.distribute(rows());
  const auto batches = data.iterate();
  verify_against_single(strategy, net, optimizer, mixed_step, *batches, {.steps = 3});
}

TEST(Verify, GroupsMayHaveAnotherOrderThanTheNet) {
  MirroredStrategy strategy(cpus(2));
  const auto net = strategy.create<torch::nn::Linear>(3, 2);
  const ParameterGroup bias({net.variables()[1]}, torch::optim::SGDOptions(0.5));
  const ParameterGroup weight({net.variables()[0]}, torch::optim::SGDOptions(0.01));
  const auto optimizer = strategy.optimizer<torch::optim::SGD>(
      std::vector<ParameterGroup>{bias, weight}, torch::optim::SGDOptions(0.1));
  const auto data = strategy.distribute(rows());
  const auto batches = data.iterate();
  verify_against_single(strategy, net, optimizer, right_step, *batches, {.steps = 2}, 3, 2);
}

TEST(Verify, AVariableBesideTheNetCannotBeVerified) {
  MirroredStrategy strategy(cpus(2));
  const auto net = strategy.create<torch::nn::Linear>(3, 2);
  std::vector<Variable> all = net.variables();
  {
    const auto scope = strategy.scope();
    all.push_back(variable("scale", 1.0, {.trainable = true}));
  }
  const auto optimizer = strategy.optimizer<torch::optim::SGD>(all, torch::optim::SGDOptions(0.1));
  const auto data = strategy.distribute(rows());
  const auto batches = data.iterate();
  EXPECT_THAT(wrong_value([&] {
                verify_against_single(strategy, net, optimizer, right_step, *batches, {}, 3, 2);
              }),
              HasSubstr("the optimizer steps scale, which is no parameter of the net"));
}

TEST(Verify, LeavesTheDefaultGeneratorAsItIs) {
  MirroredStrategy strategy(cpus(2));
  torch::manual_seed(3);
  verify(strategy, right_step);
  const Tensor after = torch::rand({3});
  torch::manual_seed(3);
  strategy.create<torch::nn::Linear>(3, 2);
  EXPECT_TRUE(torch::equal(torch::rand({3}), after));
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
