// Every optimizer of torch::optim takes the steps that it would take alone, and its state has
// names.
#include <set>

#include "lockstep/optimizer.h"
#include "lockstep/testing.h"
#include "tests/strategy/fixtures.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

using testing::run_workers;

struct DenseImpl : torch::nn::Module {
  DenseImpl() {
    kernel = register_parameter("kernel", torch::linspace(-1, 1, 6).view({3, 2}));
    bias = register_parameter("bias", torch::zeros({2}));
  }
  Tensor loss(const Tensor& x) { return (torch::mm(x, kernel) + bias - 1).pow(2).sum(); }
  Tensor kernel, bias;
};
TORCH_MODULE(Dense);

Tensor rows() { return torch::linspace(-1, 1, 12).view({4, 3}); }

/// Four rows on two replicas against four rows alone.
template <class T, class Options>
void expect_steps_as_alone(const Options& options) {
  Dense alone;
  T optimizer(alone->parameters(), options);
  for (int i = 0; i < 4; ++i) {
    optimizer.zero_grad();
    alone->loss(rows()).backward();
    optimizer.step();
  }
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto net = strategy.create<Dense>();
  const auto together = strategy.optimizer<T>(net, options);
  for (int i = 0; i < 4; ++i) {
    strategy.run(
        [](ReplicaContext& replica, Dense& own, Optimizer& step) {
          own->loss(rows().narrow(0, 2 * replica.replica_id_in_sync_group(), 2)).backward();
          step.apply(replica);
        },
        net, together);
  }
  EXPECT_TRUE(torch::allclose(net[0]->kernel, alone->kernel, 1e-4, 1e-6));
  EXPECT_TRUE(net[0]->kernel.equal(net[1]->kernel));
}

TEST(OptimizerKinds, StepAsTheyWouldAlone) {
  using namespace torch::optim;
  expect_steps_as_alone<SGD>(SGDOptions(0.05).momentum(0.9).nesterov(true).weight_decay(0.01));
  expect_steps_as_alone<Adam>(AdamOptions(0.05).amsgrad(true));
  expect_steps_as_alone<AdamW>(AdamWOptions(0.05));
  expect_steps_as_alone<Adagrad>(AdagradOptions(0.05));
  expect_steps_as_alone<RMSprop>(RMSpropOptions(0.05).momentum(0.5).centered(true));
}

// libtorch counts each of its changes of the velocity; a pass of ours is none of them.
TEST(OptimizerKinds, StepInOnePass) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto net = strategy.create<Dense>();
  const auto sgd =
      strategy.optimizer<torch::optim::SGD>(net, torch::optim::SGDOptions(0.05).momentum(0.9));
  const auto step = [](ReplicaContext& replica, Dense& own, Optimizer& optimizer) {
    own->loss(rows()).backward();
    optimizer.apply(replica);
    auto& state =
        static_cast<torch::optim::SGDParamState&>(*optimizer.local().state().begin()->second);
    return torch::tensor(static_cast<std::int64_t>(state.momentum_buffer()._version()));
  };
  const auto first = strategy.run(step, net, sgd);
  const Tensor before = net[0]->kernel.clone();
  const auto second = strategy.run(step, net, sgd);
  EXPECT_FALSE(net[0]->kernel.equal(before));
  for (int r = 0; r < 2; ++r) EXPECT_TRUE(second[r].equal(first[r]));
}

template <class Options>
std::vector<OptimizerVariable> state_after_a_step(Strategy& strategy, const Options& options) {
  const auto scope = strategy.scope();
  const auto net = strategy.create<Dense>();
  using T = std::conditional_t<std::is_same_v<Options, torch::optim::AdamOptions>,
                               torch::optim::Adam, torch::optim::SGD>;
  const auto optimizer = strategy.optimizer<T>(net, options);
  strategy.run(
      [](ReplicaContext& replica, Dense& own, Optimizer& step) {
        own->loss(rows()).backward();
        step.apply(replica);
      },
      net, optimizer);
  return optimizer.variables();
}

// Case 135, by count: Adam has two slots for each variable and two powers, SGD nothing; one copy of
// each for every replica.
/// SGD that tells how many threads its steps have.
struct Counting : torch::optim::SGD {
  Counting(const std::vector<torch::optim::OptimizerParamGroup>& groups,
           const torch::optim::SGDOptions& options)
      : SGD(groups, options) {}
  Tensor step(LossClosure closure = nullptr) override {
    threads = at::get_num_threads();
    return SGD::step(closure);
  }
  int threads = 0;
};

/// Large parameters are divided among the threads of a replica.
template <class T, class Options>
void expect_steps_with_threads_as_alone(const Options& options, int threads) {
  const Tensor initial = torch::linspace(-1, 1, 100'003);
  const Tensor gradient = (initial * 5).sin();
  const Tensor alone = initial.clone();
  T optimizer({alone}, options);
  MirroredOptions two = cpus(2);
  two.replicas.threads_per_replica = threads;
  MirroredStrategy strategy(two);
  const auto scope = strategy.scope();
  const Variable w = variable("w", initial, {.trainable = true});
  const auto together = strategy.optimizer<T>(std::vector{w}, options);
  for (int i = 0; i < 4; ++i) {
    alone.mutable_grad() = gradient * 2;
    optimizer.step();
    const auto each = strategy.run([&] { return gradient.clone(); });
    together.distributed_apply(strategy, {{each, w}});
  }
  for (int c = 0; c < 2; ++c) EXPECT_TRUE(w[c].equal(alone)) << threads << " threads, copy " << c;
}

TEST(OptimizerKinds, StepWithTheThreadsOfAReplica) {
  using namespace torch::optim;
  for (const int threads : {1, 2, 3}) {
    expect_steps_with_threads_as_alone<SGD>(SGDOptions(0.05).momentum(0.9), threads);
    expect_steps_with_threads_as_alone<Adam>(AdamOptions(0.05), threads);
    MirroredOptions options = cpus(2);
    options.replicas.threads_per_replica = threads;
    MirroredStrategy strategy(options);
    const auto scope = strategy.scope();
    const Variable w = variable("w", 1.0, {.trainable = true});
    const auto counting = strategy.optimizer<Counting>(std::vector{w}, SGDOptions(0.1));
    strategy.run([&] { counting.apply_gradients({{torch::ones({}), w}}); });
    for (int r = 0; r < 2; ++r) {
      EXPECT_EQ(dynamic_cast<Counting&>(counting.select_replica(r).local()).threads, threads) << r;
    }
  }
}

TEST(OptimizerKinds, Case135StateIsCounted) {
  MirroredStrategy strategy(cpus(2));
  const auto adam = state_after_a_step(strategy, torch::optim::AdamOptions(0.1));
  std::set<std::string> names;
  std::size_t copies = 0;
  int slots = 0;
  for (const OptimizerVariable& variable : adam) {
    names.insert(variable.name);
    copies += variable.components.size();
    slots += variable.slot ? 1 : 0;
  }
  EXPECT_EQ(names, (std::set<std::string>{"kernel/exp_avg", "kernel/exp_avg_sq", "bias/exp_avg",
                                          "bias/exp_avg_sq", "beta1_power", "beta2_power"}));
  EXPECT_EQ(slots, 4);
  EXPECT_EQ(copies, 12U);
  EXPECT_TRUE(state_after_a_step(strategy, torch::optim::SGDOptions(0.1)).empty());
  const auto momentum = state_after_a_step(strategy, torch::optim::SGDOptions(0.1).momentum(0.9));
  ASSERT_EQ(momentum.size(), 2U);
  EXPECT_EQ(momentum[0].name, "kernel/momentum_buffer");
  EXPECT_TRUE(momentum[0].components[0].equal(momentum[0].components[1]));
}

TEST(OptimizerKinds, LbfgsEvaluatesTheSummedLoss) {
  const auto options = torch::optim::LBFGSOptions(0.5).max_iter(5);
  Dense alone;
  torch::optim::LBFGS optimizer(alone->parameters(), options);
  for (int i = 0; i < 2; ++i) {
    optimizer.step([&] {
      optimizer.zero_grad();
      Tensor loss = alone->loss(rows());
      loss.backward();
      return loss;
    });
  }
  const auto train = [&](Strategy& strategy, const GradientOptions& gradients) {
    const auto scope = strategy.scope();
    const auto net = strategy.create<Dense>();
    const auto together = strategy.optimizer<torch::optim::LBFGS>(net, options, gradients);
    for (int i = 0; i < 2; ++i) {
      strategy.run(
          [](ReplicaContext& replica, Dense& own, Optimizer& step) {
            step.apply(replica, [&] {
              Tensor loss = own->loss(rows().narrow(0, 2 * replica.replica_id_in_sync_group(), 2));
              loss.backward();
              return loss;
            });
          },
          net, together);
    }
    EXPECT_TRUE(torch::allclose(net[0]->kernel, alone->kernel, 1e-3, 1e-4))
        << net[0]->kernel << alone->kernel;
    EXPECT_EQ(together.iterations(), 2);
  };
  MirroredStrategy mirrored(cpus(2));
  train(mirrored, {});
  for (const Overlap overlap : {Overlap::automatic, Overlap::always}) {
    run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
      train(strategy, {.overlap = overlap, .bucket_bytes = 64});
    });
  }
}

TEST(OptimizerKinds, StateOfLbfgsIsTheWholesAndComplete) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto net = strategy.create<Dense>();
  const auto lbfgs =
      strategy.optimizer<torch::optim::LBFGS>(net, torch::optim::LBFGSOptions(0.5).max_iter(3));
  strategy.run(
      [](ReplicaContext& replica, Dense& own, Optimizer& step) {
        step.apply(replica, [&] {
          Tensor loss = own->loss(rows());
          loss.backward();
          return loss;
        });
      },
      net, lbfgs);
  std::set<std::string> names;
  for (const OptimizerVariable& variable : lbfgs.variables()) {
    names.insert(variable.name);
    EXPECT_FALSE(variable.slot) << variable.name;
    ASSERT_EQ(variable.components.size(), 2U) << variable.name;
    EXPECT_TRUE(variable.components[0].equal(variable.components[1])) << variable.name;
  }
  for (const char* name : {"d", "H_diag", "prev_flat_grad", "old_dirs/0", "old_stps/0", "ro/0",
                           "al/0", "t", "prev_loss", "func_evals", "n_iter"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

/// The last parameter has taken fewer steps than the first.
TEST(OptimizerKinds, PowersOfBetasCountTheMostSteps) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto net = strategy.create<Dense>();
  const auto adam = strategy.optimizer<torch::optim::Adam>(net, torch::optim::AdamOptions(0.1),
                                                           {.allow_unused = true});
  for (int i = 0; i < 3; ++i) {
    strategy.run(
        [&](ReplicaContext& replica, Dense& own, Optimizer& step) {
          (i == 0 ? own->loss(rows()) : own->kernel.pow(2).sum()).backward();
          step.apply(replica);
        },
        net, adam);
  }
  for (const OptimizerVariable& variable : adam.variables()) {
    if (variable.name != "beta1_power") continue;
    EXPECT_FLOAT_EQ(variable.components[0].item<float>(), std::pow(0.9F, 4.0F));
    return;
  }
  FAIL() << "no beta1_power";
}

TEST(OptimizerKinds, GroupsHaveOptionsOfTheirOwn) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto net = strategy.create<Dense>();
  const std::vector<ParameterGroup> groups = {{{net.variables()[0]}, torch::optim::SGDOptions(0.0)},
                                              {{net.variables()[1]}}};
  const auto sgd = strategy.optimizer<torch::optim::SGD>(groups, torch::optim::SGDOptions(0.1));
  const Tensor kernel = net[0]->kernel.detach().clone();
  strategy.run(
      [](ReplicaContext& replica, Dense& own, Optimizer& step) {
        own->loss(rows()).backward();
        step.apply(replica);
      },
      net, sgd);
  EXPECT_TRUE(net[0]->kernel.equal(kernel));
  EXPECT_NE(net[0]->bias[0].item<double>(), 0);
}

TEST(OptimizerKinds, SchedulersStepAllReplicasRates) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto net = strategy.create<Dense>();
  const auto sgd = strategy.optimizer<torch::optim::SGD>(net, torch::optim::SGDOptions(1.0));
  Scheduler halving = sgd.scheduler<torch::optim::StepLR>(1U, 0.5);
  halving.step();  // libtorch's first step() leaves the rate
  halving.step();
  EXPECT_DOUBLE_EQ(sgd.learning_rate(), 0.5);
  EXPECT_DOUBLE_EQ(sgd.select_replica(1).local().param_groups()[0].options().get_lr(), 0.5);
  sgd.set_learning_rate(0.25);
  EXPECT_DOUBLE_EQ(sgd.select_replica(1).local().param_groups()[0].options().get_lr(), 0.25);
  // Once for all, not once by each replica.
  EXPECT_THAT(wrong_context([&] { strategy.run([&] { halving.step(); }); }),
              HasSubstr("Scheduler::step"));
  EXPECT_THAT(wrong_context([&] { strategy.run([&] { sgd.set_learning_rate(1); }); }),
              HasSubstr("set_learning_rate"));
  EXPECT_DOUBLE_EQ(sgd.learning_rate(), 0.25);
}

TEST(OptimizerKinds, OptionsThatCannotBeAreRefused) {
  MirroredStrategy strategy(cpus(1));
  const auto scope = strategy.scope();
  const auto net = strategy.create<Dense>();
  EXPECT_THAT(wrong_value([&] {
                strategy.optimizer<torch::optim::SGD>(net, torch::optim::SGDOptions(1.0),
                                                      {.bucket_bytes = -1});
              }),
              HasSubstr("bucket_bytes is -1"));
  EXPECT_THAT(wrong_value([&] {
                strategy.optimizer<torch::optim::SGD>(net, torch::optim::SGDOptions(1.0),
                                                      {.check_every = -2});
              }),
              HasSubstr("check_every is -2"));
}

TEST(OptimizerKinds, AScheduleGivesTheSameBitsOnSeveralWorkers) {
  const auto train = [](Strategy& strategy, const GradientOptions& options) {
    const auto scope = strategy.scope();
    const auto net = strategy.create<Dense>();
    const auto sgd = strategy.optimizer<torch::optim::SGD>(
        net, torch::optim::SGDOptions(0.1).momentum(0.9), options);
    Scheduler halving = sgd.scheduler<torch::optim::StepLR>(1U, 0.5);
    for (int i = 0; i < 4; ++i) {
      strategy.run(
          [](ReplicaContext& replica, Dense& own, Optimizer& step) {
            own->loss(rows().narrow(0, 2 * replica.replica_id_in_sync_group(), 2)).backward();
            step.apply(replica);
          },
          net, sgd);
      halving.step();
    }
    sgd.check_parameters();
    return net[0]->kernel.detach().clone();
  };
  MirroredStrategy mirrored(cpus(2));
  const Tensor reference = train(mirrored, {});
  for (const Overlap overlap : {Overlap::never, Overlap::always}) {
    run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
      EXPECT_TRUE(reference.equal(train(strategy, {.overlap = overlap, .bucket_bytes = 16})));
    });
  }
}

TEST(OptimizerKinds, AVariableGivenTwiceIsRefused) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto net = strategy.create<Dense>();
  const auto& v = net.variables();
  EXPECT_THAT(wrong_value([&] {
                strategy.optimizer<torch::optim::SGD>(std::vector{v[0], v[0]},
                                                      torch::optim::SGDOptions(1.0));
              }),
              ::testing::HasSubstr("kernel is given twice"));
}

}  // namespace
}  // namespace lockstep
