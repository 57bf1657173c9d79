// apply_gradients and distributed_apply: gradients that the user has computed, also of variables
// that have no copy for each replica.
#include <thread>

#include "strategy/core.h"
#include "tests/train/optimizer_fixtures.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::run_workers;

/// Each replica's gradient of w * x is x, the number of the replica plus one.
PerReplica<Tensor> ones_upwards(Strategy& strategy) {
  return strategy.run([](ReplicaContext& replica) {
    return torch::full({1}, 1.0 + replica.replica_id_in_sync_group());
  });
}

// --- variables with fewer copies than replicas ---------------------------------------------------

void step_shared_variable(Strategy& strategy, const Variable& w) {
  ASSERT_EQ(w.size(), 1);
  const auto sgd =
      strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(1), {.check_every = 1});
  EXPECT_EQ(sgd.size(), strategy.core().replicas());
  sgd.distributed_apply(strategy, {{ones_upwards(strategy), w}});
  const int n = strategy.num_replicas_in_sync();
  const double sum = n * (n + 1) / 2.0;
  EXPECT_EQ(numbers(w), (std::vector<double>{-sum}));

  strategy.run(
      [&](ReplicaContext&, Optimizer& optimizer) {
        const Tensor own = w.read();
        const auto gradients = torch::autograd::grad({own.sum()}, {own});
        optimizer.apply_gradients({{gradients[0], w}});
      },
      sgd);
  EXPECT_EQ(numbers(w), (std::vector<double>{-sum - n}));
  EXPECT_EQ(sgd.iterations(), 2);
  sgd.check_parameters();
  sgd.reset();
  EXPECT_THAT(sgd.explain(), HasSubstr("by hand"));
}

TEST(GradientsByHand, StepTheOneCopyOfCentralStorage) {
  CentralStorageStrategy strategy(
      {.compute_devices = {"CPU:0", "CPU:1", "CPU:2"}, .parameter_device = "CPU:0"});
  const auto scope = strategy.scope();
  step_shared_variable(strategy, trainable("w", torch::zeros({1})));
}

TEST(GradientsByHand, StepAVariableThatIsOnOneDevice) {
  const auto check = [](Strategy& strategy) {
    const auto scope = strategy.scope();
    std::optional<Variable> w;
    {
      const auto there = strategy.colocate_vars_with(Destinations(Device("CPU:0")));
      w.emplace(trainable("w", torch::zeros({1})));
    }
    step_shared_variable(strategy, *w);
  };
  MirroredStrategy mirrored(cpus(3));
  check(mirrored);
  run_workers({.workers = 2, .replicas = 2}, check);
}

TEST(GradientsByHand, SchedulersAndStateAreThoseOfTheOneCopy) {
  CentralStorageStrategy strategy(
      {.compute_devices = {"CPU:0", "CPU:1"}, .parameter_device = "CPU:0"});
  const auto scope = strategy.scope();
  const Variable w = trainable("w", torch::zeros({1}));
  const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(1).momentum(0.5));
  Scheduler halving = sgd.scheduler<torch::optim::StepLR>(1U, 0.5);
  sgd.distributed_apply(strategy, {{ones_upwards(strategy), w}});
  halving.step();  // libtorch's first step() leaves the rate
  halving.step();
  EXPECT_DOUBLE_EQ(sgd.learning_rate(), 0.5);
  EXPECT_DOUBLE_EQ(sgd.select_replica(1).local().param_groups()[0].options().get_lr(), 0.5);
  ASSERT_EQ(sgd.variables().size(), 1U);
  EXPECT_EQ(sgd.variables()[0].components.size(), 1U);
}

TEST(GradientsByHand, ABackwardPassHasNoCopyOfItsOwn) {
  CentralStorageStrategy strategy(
      {.compute_devices = {"CPU:0", "CPU:1"}, .parameter_device = "CPU:0"});
  const auto scope = strategy.scope();
  const Variable w = trainable("w", torch::zeros({1}));
  const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(1));
  const auto refusal = [&](const std::function<void(ReplicaContext&, Optimizer&)>& step) {
    return wrong_context([&] {
      strategy.run([&](ReplicaContext& replica, Optimizer& opt) { step(replica, opt); }, sgd);
    });
  };
  EXPECT_THAT(refusal([](ReplicaContext& replica, Optimizer& opt) { opt.apply(replica); }),
              HasSubstr("apply: variable w has one copy for 2 replicas"));
  EXPECT_THAT(refusal([](ReplicaContext& replica, Optimizer& opt) {
                opt.apply(replica, [] { return torch::zeros({}); });
              }),
              HasSubstr("apply_gradients()"));
  EXPECT_THAT(refusal([](ReplicaContext&, Optimizer& opt) { (void)opt.accumulate(); }),
              HasSubstr("accumulate: variable w has one copy"));
}

TEST(GradientsByHand, OneOptimizerHasVariablesOfAsManyCopies) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const Variable everywhere = trainable("everywhere", torch::zeros({1}));
  const auto there = strategy.colocate_vars_with(Destinations(Device("CPU:1")));
  const Variable once = trainable("once", torch::zeros({1}));
  EXPECT_THAT(wrong_context([&] {
                strategy.optimizer<torch::optim::SGD>(std::vector{everywhere, once}, rate(1));
              }),
              HasSubstr("everywhere has 2 copies, variable once has 1"));
}

// --- where it may be called, and with what -------------------------------------------------------

TEST(GradientsByHand, DistributedApplyEntersTheStrategyItself) {
  MirroredStrategy strategy(cpus(2));
  std::optional<Variable> w;
  std::optional<DistributedOptimizer> sgd;
  {
    const auto scope = strategy.scope();
    w.emplace(trainable("w", torch::zeros({1})));
    sgd.emplace(strategy.optimizer<torch::optim::SGD>(std::vector{*w}, rate(1)));
  }
  sgd->distributed_apply(strategy, {{ones_upwards(strategy), *w}});
  EXPECT_EQ(numbers(*w), (std::vector<double>{-3, -3}));
  expect_outside();

  MirroredStrategy other(cpus(2));
  EXPECT_THAT(wrong_context([&] {
                sgd->distributed_apply(other, {{ones_upwards(strategy), *w}});
              }),
              HasSubstr("Mixing different Strategy objects"));
  EXPECT_THAT(wrong_context([&] { strategy.run([&] { sgd->distributed_apply(strategy, {}); }); }),
              HasSubstr("in a step function: use apply_gradients"));
}

TEST(GradientsByHand, AVariableGivenTwiceIsRefused) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const Variable w = trainable("w", torch::zeros({1}));
  const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(1));
  const auto gradients = ones_upwards(strategy);
  EXPECT_THAT(wrong_value([&] {
                sgd.distributed_apply(strategy, {{gradients, w}, {gradients, w}});
              }),
              HasSubstr("variable w is given twice"));
  EXPECT_EQ(numbers(w), (std::vector<double>{0, 0}));
}

TEST(GradientsByHand, AGradientOfAnotherShapeIsRefused) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const Variable w = trainable("w", torch::zeros({3}));
  const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(1));
  EXPECT_THAT(wrong_value([&] {
                sgd.distributed_apply(strategy, {{ones_upwards(strategy), w}});
              }),
              HasSubstr("the gradient of w is [1], the variable [3]"));
  EXPECT_EQ(numbers(w[0]), (std::vector<double>{0, 0, 0}));
}

/// The second step's `.grad` lies in a bucket.
std::vector<double> stepped_with_grad(Strategy& strategy, const GradientOptions& options) {
  const auto scope = strategy.scope();
  const Variable w = trainable("w", torch::zeros({1}));
  const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(1), options);
  const auto step = [&](const std::function<void(ReplicaContext&, Optimizer&)>& apply) {
    strategy.run(
        [&](ReplicaContext& replica, Optimizer& optimizer) {
          (w.read() * (1 + replica.replica_id_in_sync_group())).sum().backward();
          apply(replica, optimizer);
        },
        sgd);
  };
  step([](ReplicaContext& replica, Optimizer& optimizer) { optimizer.apply(replica); });
  step([&](ReplicaContext&, Optimizer& optimizer) {
    optimizer.apply_gradients({{w.read().grad(), w}});
  });
  return numbers(w[0]);
}

TEST(GradientsByHand, GradIsTakenAlsoIfItWasSent) {
  MirroredStrategy threads(cpus(2));
  EXPECT_EQ(stepped_with_grad(threads, {}), (std::vector<double>{-6}));
  for (const Overlap overlap : {Overlap::never, Overlap::always}) {
    run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
      EXPECT_EQ(stepped_with_grad(strategy, {.overlap = overlap}), (std::vector<double>{-6}));
    });
  }
}

/// As many copies as replicas, but not each replica's own.
TEST(GradientsByHand, CopiesInAnotherOrderAreShared) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto there = strategy.colocate_vars_with(DeviceList{"CPU:1", "CPU:0"});
  const Variable w = trainable("w", torch::zeros({1}));
  const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(1));
  EXPECT_THAT(wrong_context([&] {
                strategy.run(
                    [](ReplicaContext& replica, Optimizer& optimizer) { optimizer.apply(replica); },
                    sgd);
              }),
              HasSubstr("on other devices than the replicas, or in another order"));
  sgd.distributed_apply(strategy, {{ones_upwards(strategy), w}});
  EXPECT_EQ(numbers(w), (std::vector<double>{-3, -3}));
}

/// A captured optimizer in a step function is that of the step's replica.
TEST(GradientsByHand, ACapturedOptimizerAppliesInAStepFunction) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const Variable w = trainable("w", torch::zeros({1}));
  const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(1));
  strategy.run([&](ReplicaContext& replica) {
    sgd.apply_gradients({{torch::full({1}, 1.0 + replica.replica_id_in_sync_group()), w}});
  });
  EXPECT_EQ(numbers(w), (std::vector<double>{-3, -3}));
  EXPECT_THAT(wrong_context([&] {
                sgd.apply_gradients({{torch::ones({1}), w}});
              }),
              HasSubstr("distributed_apply"));
}

/// Two threads of the caller, also with one replica: a step of one is over before the other's.
TEST(GradientsByHand, StepsOfTwoThreadsTakeTurns) {
  const auto check = [](Strategy& strategy) {
    auto scope = strategy.scope();
    const Variable w = trainable("w", torch::zeros({1}));
    const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(1));
    const auto ones = strategy.run([] { return torch::ones({1}); });
    scope.exit();
    constexpr int kSteps = 200;
    const auto work = [&] {
      for (int i = 0; i < kSteps; ++i) {
        const StepResult step = sgd.distributed_apply(strategy, {{ones, w}}, {.global_norm = true});
        EXPECT_EQ(step.global_norm, strategy.num_replicas_in_sync());
      }
    };
    std::thread other(work);
    work();
    other.join();
    EXPECT_EQ(w[0].item<double>(), -2.0 * kSteps * strategy.num_replicas_in_sync());
    EXPECT_EQ(sgd.iterations(), 2 * kSteps);
  };
  OneDeviceStrategy one(Device("CPU:0"));
  check(one);
  MirroredStrategy two(cpus(2));
  check(two);
}

/// Passes that were not applied are forgotten by a step with gradients given by hand, and the next
/// pass is a first one again.
TEST(GradientsByHand, AStepEndsWhatBackwardHasBegun) {
  const auto train = [](Strategy& strategy, const GradientOptions& options) {
    const auto scope = strategy.scope();
    const auto net = strategy.create<TwoLayers>();
    const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(0.1), options);
    for (int i = 0; i < 3; ++i) {
      strategy.run(
          [&](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
            own->forward(rows_of(replica.replica_id_in_sync_group())).pow(2).sum().backward();
            optimizer.apply(replica);
            own->forward(rows_of(7)).pow(2).sum().backward();  // is not counted
            GradientsAndVariables pairs;
            for (const Variable& v : net.variables()) {
              pairs.emplace_back(torch::ones(v.shape()) * 0.1, v);
            }
            optimizer.apply_gradients(pairs);
          },
          net, sgd);
    }
    EXPECT_EQ(sgd.iterations(), 6);
    sgd.check_parameters();
    return values_of(net.variables());
  };
  MirroredStrategy mirrored(cpus(2));
  const auto reference = train(mirrored, {});
  for (const Overlap overlap : {Overlap::never, Overlap::always}) {
    run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
      expect_equal(train(strategy, {.overlap = overlap, .bucket_bytes = 64}), reference);
    });
  }
}

}  // namespace
}  // namespace lockstep
