// What would let the copies differ without a word: optimizers that are not torch's own, the
// strategy's own way of adding up, and changes that were made to one copy or on one worker.
#include <optional>
#include <sstream>

#include "lockstep/cross_device_ops.h"
#include "tests/train/optimizer_fixtures.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::run_workers;

// --- optimizers that are not torch's own ---------------------------------------------------------

/// SGD that adds the weight decay to `.grad` itself, and noise to each step.
struct OwnOptions : torch::optim::OptimizerCloneableOptions<OwnOptions> {
  TORCH_ARG(double, lr) = 0.1;
  TORCH_ARG(double, decay) = 0;
  TORCH_ARG(double, noise) = 0;

 public:
  double get_lr() const override { return lr(); }
  void set_lr(const double value) override { lr(value); }
};

class Own : public torch::optim::Optimizer {
 public:
  Own(std::vector<torch::optim::OptimizerParamGroup> groups, const OwnOptions& options)
      : Optimizer(std::move(groups), std::make_unique<OwnOptions>(options)), options_(options) {}
  Tensor step(LossClosure closure = nullptr) override {
    const torch::NoGradGuard not_recorded;
    Tensor loss;
    if (closure) loss = closure();
    for (auto& group : param_groups()) {
      for (Tensor& p : group.params()) {
        if (!p.grad().defined()) continue;
        p.mutable_grad().add_(p, options_.decay());
        p.sub_(p.grad() * options_.lr());
        if (options_.noise() != 0) p.add_(torch::randn_like(p), options_.noise());
      }
    }
    return loss;
  }

 private:
  OwnOptions options_;
};

template <class F>
void in_every_layout(const F& check) {
  MirroredStrategy threads(cpus(4));
  check(threads);
  for (const auto& [workers, replicas] : {std::pair(4, 1), {2, 2}}) {
    run_workers({.workers = workers, .replicas = replicas},
                [&](MultiWorkerMirroredStrategy& strategy) { check(strategy); });
  }
}

Variable weight() { return trainable("w", torch::linspace(-1, 1, 6)); }

/// The weight after three steps.
Tensor stepped(Strategy& strategy, const OwnOptions& options, bool with_closure = false) {
  const auto scope = strategy.scope();
  const Variable w = weight();
  const auto own = strategy.optimizer<Own>(std::vector{w}, options);
  for (int i = 0; i < 3; ++i) {
    strategy.run(
        [&](ReplicaContext& replica, Optimizer& optimizer) {
          const auto pass = [&] {
            Tensor loss = (w.read() * (1.0 + replica.replica_id_in_sync_group())).sum();
            loss.backward();
            return loss;
          };
          if (with_closure) {
            optimizer.apply(replica, pass);
          } else {
            pass();
            optimizer.apply(replica);
          }
        },
        own);
  }
  own.check_parameters();
  return w[0].detach().clone();
}

TEST(OwnOptimizer, MayWriteToGrad) {
  Tensor alone = torch::linspace(-1, 1, 6);
  for (int i = 0; i < 3; ++i) alone = alone - (10.0 + alone * 0.5) * 0.1;
  in_every_layout([&](Strategy& strategy) {
    for (const bool with_closure : {false, true}) {
      const Tensor own = stepped(strategy, OwnOptions().decay(0.5), with_closure);
      EXPECT_TRUE(torch::allclose(own, alone)) << own << alone;
    }
  });
}

TEST(OwnOptimizer, GradientsByHandMayBeWrittenTo) {
  MirroredStrategy strategy(cpus(3));
  const auto scope = strategy.scope();
  const Variable w = weight();
  const auto own = strategy.optimizer<Own>(std::vector{w}, OwnOptions().decay(0.5));
  for (int i = 0; i < 2; ++i) {
    const auto gradients = strategy.run([] { return torch::ones({6}); });
    own.distributed_apply(strategy, {{gradients, w}});
  }
  own.check_parameters();
}

/// What a step draws is the same everywhere, in every layout.
TEST(OwnOptimizer, DrawsTheSameNoiseForEveryCopy) {
  std::mutex mutex;
  std::vector<Tensor> all;
  for (const bool with_closure : {false, true}) {
    MirroredOptions options = cpus(4);
    options.replicas.seed = 7;
    MirroredStrategy threads(options);
    all.push_back(stepped(threads, OwnOptions().noise(0.1), with_closure));
    EXPECT_FALSE(all[0].equal(stepped(threads, OwnOptions(), with_closure)));
    for (const auto& [workers, replicas] : {std::pair(4, 1), {2, 2}}) {
      testing::TestCluster cluster{.workers = workers, .replicas = replicas};
      cluster.options.replicas.seed = 7;
      run_workers(cluster, [&](MultiWorkerMirroredStrategy& strategy) {
        const Tensor own = stepped(strategy, OwnOptions().noise(0.1), with_closure);
        const std::lock_guard lock(mutex);
        all.push_back(own);
      });
    }
  }
  for (const Tensor& each : all) EXPECT_TRUE(each.equal(all[0])) << each << all[0];
}

TEST(OwnOptimizer, DoesNotTouchTheReplicasNumbers) {
  MirroredOptions options = cpus(2);
  options.replicas.seed = 7;
  const auto draws = [&](double noise) {
    MirroredStrategy strategy(options);
    const auto scope = strategy.scope();
    const Variable w = weight();
    const auto own = strategy.optimizer<Own>(std::vector{w}, OwnOptions().noise(noise));
    const auto drawn = strategy.run(
        [&](ReplicaContext& replica, Optimizer& optimizer) {
          w.read().sum().backward();
          optimizer.apply(replica);
          return torch::rand({3});
        },
        own);
    EXPECT_FALSE(drawn[0].equal(drawn[1]));
    return drawn[1];
  };
  EXPECT_TRUE(draws(0).equal(draws(0.1)));
}

TEST(OwnOptimizer, TheSeedAndTheIterationsDecideItsNoise) {
  const auto check = [](Strategy& strategy) {
    const auto scope = strategy.scope();
    const Variable w = weight();
    const auto own = strategy.optimizer<Own>(std::vector{w}, OwnOptions().noise(0.1));
    const auto step = [&] {
      w.assign(torch::zeros({6}));
      strategy.run(
          [&](ReplicaContext& replica, Optimizer& optimizer) {
            w.read().sum().backward();
            optimizer.apply(replica);
          },
          own);
      return w[0].detach().clone();
    };
    const Tensor first = step();
    const Tensor second = step();
    EXPECT_FALSE(first.equal(second));
    strategy.manual_seed(8);
    own.set_iterations(0);
    const Tensor other = step();
    EXPECT_FALSE(other.equal(first)) << "of another seed";
    EXPECT_FALSE(other.equal(second)) << "seed and iterations have the same sum";
    strategy.manual_seed(7);
    own.set_iterations(0);
    EXPECT_TRUE(step().equal(first));
    EXPECT_TRUE(step().equal(second));
    EXPECT_EQ(own.iterations(), 2);
    // A program that goes on from a checkpoint after the first step.
    own.set_iterations(1);
    EXPECT_TRUE(step().equal(second));
    EXPECT_THAT(wrong_value([&] { own.set_iterations(-1); }), HasSubstr("set_iterations: -1"));
  };
  MirroredOptions options = cpus(2);
  options.replicas.seed = 7;
  MirroredStrategy threads(options);
  check(threads);
  testing::TestCluster cluster{.workers = 2, .replicas = 2};
  cluster.options.replicas.seed = 7;
  run_workers(cluster, check);
}

TEST(OwnOptimizer, WorkersSetTheSameIterations) {
  expect_every_worker_throws<Mismatch>(
      {.workers = 2},
      [](MultiWorkerMirroredStrategy& strategy) {
        const auto scope = strategy.scope();
        const auto own = strategy.optimizer<Own>(std::vector{weight()}, OwnOptions());
        own.set_iterations(3 + strategy.worker_index());
      },
      [](const Mismatch& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("iterations 3"), HasSubstr("iterations 4")));
      });
}

TEST(OwnOptimizer, ItsStateIsNotSaidToBeNone) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto own = strategy.optimizer<Own>(std::vector{weight()}, OwnOptions());
  EXPECT_THAT(error_of<Unsupported>(Code::unimplemented, [&] { (void)own.variables(); }),
              AllOf(HasSubstr("Own"), HasSubstr("local()")));
}

/// SGD that keeps a state of its own type.
struct OwnState : torch::optim::OptimizerCloneableParamState<OwnState> {
  int64_t steps = 0;
};
struct CountingSgd : torch::optim::SGD {
  using SGD::SGD;
  Tensor step(LossClosure closure = nullptr) override {
    for (const Tensor& parameter : param_groups().front().params()) {
      const auto key = c10::guts::to_string(parameter.unsafeGetTensorImpl());
      if (state().count(key) == 0) state()[key] = std::make_unique<OwnState>();
      ++static_cast<OwnState&>(*state()[key]).steps;
    }
    return SGD::step(std::move(closure));
  }
};

TEST(OwnOptimizer, AStateOfItsOwnTypeIsNotSaidToBeNone) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const Variable w = weight();
  const auto own = strategy.optimizer<CountingSgd>(std::vector{w}, rate(0.1));
  EXPECT_TRUE(own.variables().empty()) << "before the first step there is none";
  strategy.run(
      [&](ReplicaContext& replica, Optimizer& optimizer) {
        w.read().sum().backward();
        optimizer.apply(replica);
      },
      own);
  EXPECT_THAT(
      error_of<Unsupported>(Code::unimplemented, [&] { (void)own.variables(); }),
      AllOf(HasSubstr("CountingSgd"), HasSubstr("a state of its own type"), HasSubstr("local()")));
}

// --- cross-device ops of the user ----------------------------------------------------------------

/// A hundred times the sum.
struct Hundredfold : ReductionToOneDevice {
  std::vector<Mirrored<Tensor>> do_batch_reduce(ReduceOp op, std::span<const ReducePair> pairs,
                                                const CommunicationOptions& options) override {
    ++calls;
    auto results = ReductionToOneDevice::do_batch_reduce(op, pairs, options);
    for (const auto& result : results) {
      for (int i = 0; i < result.size(); ++i) {
        if (i == 0 || !result[i].is_alias_of(result[0])) Tensor(result[i]).mul_(100);
      }
    }
    return results;
  }
  int calls = 0;
};

TEST(UsersCrossDeviceOps, SumTheGradientsOfApply) {
  for (const int replicas : {1, 2, 3}) {
    const auto ops = std::make_shared<Hundredfold>();
    MirroredOptions options = cpus(replicas);
    options.cross_device_ops = ops;
    MirroredStrategy strategy(options);
    const auto scope = strategy.scope();
    const Variable w = trainable("w", torch::zeros({2}));
    const Variable unused = trainable("unused", torch::ones({2}));
    const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w, unused}, rate(1),
                                                           {.allow_unused = true});
    for (int i = 0; i < 2; ++i) {
      strategy.run(
          [&](ReplicaContext& replica, Optimizer& optimizer) {
            if (replica.replica_id_in_sync_group() == 0) w.read().sum().backward();
            optimizer.apply(replica);
          },
          sgd);
    }
    EXPECT_EQ(numbers(w[0]), (std::vector<double>{-200, -200}));
    EXPECT_EQ(numbers(unused[0]), (std::vector<double>{1, 1}));
    EXPECT_EQ(ops->calls, 2);
    sgd.check_parameters();
    EXPECT_THAT(sgd.explain(), HasSubstr("cross-device ops given to the strategy"));
  }
}

TEST(UsersCrossDeviceOps, SumTableRows) {
  MirroredOptions options = cpus(2);
  options.cross_device_ops = std::make_shared<ReductionToOneDevice>();
  MirroredStrategy strategy(options);
  const auto scope = strategy.scope();
  const auto net =
      strategy.create<torch::nn::Embedding>(torch::nn::EmbeddingOptions(6, 2).sparse(true));
  net.variables()[0].assign(torch::zeros({6, 2}));
  const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(1));
  strategy.run(
      [](ReplicaContext& replica, torch::nn::Embedding& own, Optimizer& optimizer) {
        own->forward(torch::tensor({0, replica.replica_id_in_sync_group() + 1})).sum().backward();
        optimizer.apply(replica);
      },
      net, sgd);
  EXPECT_EQ(numbers(net[0]->weight.select(1, 0)), (std::vector<double>{-2, -1, -1, 0, 0, 0}));
}

// --- changes made to one copy, or on one worker --------------------------------------------------

void train_step(Strategy& strategy, const Model<TwoLayers>& net, const DistributedOptimizer& sgd,
                bool accumulated = false) {
  strategy.run(
      [&](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
        std::optional<Accumulation> accumulation;
        if (accumulated) accumulation.emplace(optimizer.accumulate());
        own->forward(rows_of(replica.replica_id_in_sync_group())).pow(2).sum().backward();
        accumulation.reset();
        optimizer.apply(replica);
      },
      net, sgd);
}

/// A net with other weights, as torch::save writes it.
std::string saved_net() {
  TwoLayers other;
  const torch::NoGradGuard not_recorded;
  for (Tensor& p : other->parameters()) p.add_(1);
  std::ostringstream text;
  torch::save(other, text);
  return text.str();
}

void load_into(TwoLayers& net) {
  std::istringstream text(saved_net());
  torch::load(net, text);
}

TEST(ChangedParameters, WeightsLoadedIntoOneCopyAreFoundAtTheNextApply) {
  MirroredStrategy strategy(cpus(3));
  const auto scope = strategy.scope();
  for (const int steps : {0, 2}) {
    const auto net = strategy.create<TwoLayers>();
    const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(0.1));
    for (int i = 0; i < steps; ++i) train_step(strategy, net, sgd);
    load_into(net[1]);
    EXPECT_THAT(error_of<Mismatch>(Code::data_loss, [&] { train_step(strategy, net, sgd); }),
                AllOf(HasSubstr("apply: parameter a.weight of replica 1 (worker 0) differs"),
                      HasSubstr("torch::load"), HasSubstr("sync_parameters()"),
                      HasSubstr("reset() of the optimizer")));
  }
}

/// The sums of the step that was not taken are not used in the next one, even without reset().
TEST(ChangedParameters, StepsGoOnAfterTheWeightsWereMadeEqual) {
  MirroredStrategy strategy(cpus(3));
  const auto scope = strategy.scope();
  const auto net = strategy.create<TwoLayers>();
  const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(0.1));
  train_step(strategy, net, sgd);
  load_into(net[1]);
  error_of<Mismatch>(Code::data_loss, [&] { train_step(strategy, net, sgd); });
  for (int r = 0; r < net.size(); ++r) {
    for (const Tensor& p : net[r]->parameters()) EXPECT_FALSE(p.grad().defined());
  }
  for (int r = 0; r < net.size(); ++r) load_into(net[r]);
  train_step(strategy, net, sgd);
  EXPECT_EQ(sgd.iterations(), 2);
  sgd.check_parameters();

  TwoLayers alone;
  load_into(alone);
  torch::optim::SGD step(alone->parameters(), rate(0.1));
  for (int r = 0; r < net.size(); ++r) alone->forward(rows_of(r)).pow(2).sum().backward();
  step.step();
  const auto together = values_of(net.variables());
  const auto expected = alone->parameters();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(torch::allclose(together[i], expected[i], 1e-4, 1e-4)) << i;
  }
}

TEST(ChangedParameters, WeightsLoadedBeforeTheOptimizerIsMadeAreFoundThere) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto net = strategy.create<TwoLayers>();
  load_into(net[0]);
  EXPECT_THAT(error_of<Mismatch>(Code::data_loss,
                                 [&] { strategy.optimizer<torch::optim::SGD>(net, rate(0.1)); }),
              AllOf(HasSubstr("optimizer: parameter a.weight of replica 1"),
                    HasSubstr("loaded into one copy only, or on one worker only")));
}

void expect_load_on_chief_is_found(const GradientOptions& options, int replicas,
                                   bool accumulated = false) {
  expect_every_worker_throws<Mismatch>(
      {.workers = 3, .replicas = replicas},
      [&](MultiWorkerMirroredStrategy& strategy) {
        const auto scope = strategy.scope();
        const auto net = strategy.create<TwoLayers>();
        const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(0.1), options);
        for (int i = 0; i < 2; ++i) train_step(strategy, net, sgd, accumulated);
        if (strategy.is_chief()) {
          for (int r = 0; r < replicas; ++r) load_into(net[r]);
        }
        train_step(strategy, net, sgd, accumulated);
        EXPECT_EQ(sgd.iterations(), 2) << "stepped after all";
      },
      [](const Mismatch& error) {
        EXPECT_THAT(error.what(), HasSubstr("apply: parameter a.weight of replica 0 (worker 0)"));
        EXPECT_EQ(error.culprits(), std::vector<int>{0});
      });
}

TEST(ChangedParameters, WeightsLoadedOnTheChiefOnlyAreFoundByEveryWorker) {
  const GradientOptions overlap{.overlap = Overlap::always, .bucket_bytes = 64};
  for (const int replicas : {1, 2}) {
    for (const GradientOptions& options :
         {GradientOptions{}, GradientOptions{.bucket_bytes = 1}, overlap}) {
      expect_load_on_chief_is_found(options, replicas);
    }
    expect_load_on_chief_is_found(overlap, replicas, /*accumulated=*/true);
  }
}

/// Every copy on every worker the same: nothing is said, and the steps go on.
TEST(ChangedParameters, ChangesMadeEverywhereAreFine) {
  const auto check = [](Strategy& strategy, const GradientOptions& options) {
    const auto scope = strategy.scope();
    const auto net = strategy.create<TwoLayers>();
    const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(0.1), options);
    for (int i = 0; i < 2; ++i) train_step(strategy, net, sgd);
    for (int r = 0; r < net.size(); ++r) load_into(net[r]);
    train_step(strategy, net, sgd);
    net.variables()[0].assign(torch::ones({3, 4}));
    train_step(strategy, net, sgd);
    for (int i = 0; i < 2; ++i) {
      strategy.run(
          [](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
            own->forward(rows_of(replica.replica_id_in_sync_group())).pow(2).sum().backward();
            optimizer.apply(replica);
            const torch::NoGradGuard not_recorded;
            for (Tensor& p : own->parameters()) p.clamp_(-0.01, 0.01);
          },
          net, sgd);
    }
    sgd.check_parameters();
    EXPECT_EQ(sgd.iterations(), 6);
  };
  MirroredStrategy threads(cpus(2));
  check(threads, {});
  for (const Overlap overlap : {Overlap::never, Overlap::always}) {
    run_workers({.workers = 2, .replicas = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
      check(strategy, {.overlap = overlap, .bucket_bytes = 64});
    });
  }
}

TEST(ChangedParameters, AGroupAddedToOneOptimizerIsNamed) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const Variable w = trainable("w", torch::zeros({2}));
  const Variable late = trainable("late", torch::zeros({2}));
  const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(1));
  for (int r = 0; r < 2; ++r) {
    sgd.select_replica(r).local().add_param_group(
        torch::optim::OptimizerParamGroup({Tensor(late[r])}));
  }
  const auto named = AllOf(HasSubstr("add_param_group()"), HasSubstr("ParameterGroup"));
  const auto pass = [&] { (w.read() * late.read() + late.read()).sum().backward(); };
  EXPECT_THAT(wrong_context([&] {
                strategy.run(
                    [&](ReplicaContext& replica, Optimizer& optimizer) {
                      pass();
                      optimizer.apply(replica);
                    },
                    sgd);
              }),
              named);
  // A step with gradients given by hand would step the new group with each copy's own `.grad`.
  const auto ones = strategy.run([] { return torch::ones({2}); });
  EXPECT_THAT(wrong_context([&] { sgd.distributed_apply(strategy, {{ones, w}}); }), named);
  EXPECT_THAT(wrong_context([&] {
                strategy.run([&] { sgd.apply_gradients({{torch::ones({2}), w}}); });
              }),
              named);
  EXPECT_EQ(numbers(late[0]), (std::vector<double>{0, 0}));
}

TEST(ChangedParameters, ARateOfOneCopyAloneIsNamed) {
  const auto check = [](Strategy& strategy, int first, const GradientOptions& options) {
    const auto scope = strategy.scope();
    const Variable w = trainable("w", torch::zeros({2}));
    const std::vector<ParameterGroup> groups = {{{w}, rate(0.1)}};
    const auto sgd = strategy.optimizer<torch::optim::SGD>(groups, rate(0.1), options);
    const auto step = [&] {
      strategy.run(
          [&](ReplicaContext& replica, Optimizer& optimizer) {
            w.read().sum().backward();
            optimizer.apply(replica);
          },
          sgd);
    };
    step();
    step();
    const double before = w[0][0].item<double>();
    sgd.select_replica(1).local().param_groups()[0].options().set_lr(0.3);
    const auto named =
        AllOf(HasSubstr(fmt::format("replica {} has the learning rate 0.3, and replica {} has 0.1",
                                    first + 1, first)),
              HasSubstr("set_learning_rate()"));
    EXPECT_THAT(wrong_context(step), named);
    for (int c = 0; c < w.size(); ++c) EXPECT_EQ(w[c][0].item<double>(), before) << c;
    if (strategy.num_replicas_in_sync() > w.size()) return;  // the group has ended
    sgd.reset();
    const auto ones = strategy.run([] { return torch::ones({2}); });
    EXPECT_THAT(wrong_context([&] { sgd.distributed_apply(strategy, {{ones, w}}); }), named);
    // Set on every replica, in the step or by the optimizer, it is nobody's mistake.
    sgd.set_learning_rate(0.25);
    step();
    strategy.run(
        [&](ReplicaContext& replica, Optimizer& optimizer) {
          optimizer.local().param_groups()[0].options().set_lr(0.5);
          w.read().sum().backward();
          optimizer.apply(replica);
        },
        sgd);
    sgd.check_parameters();
  };
  MirroredStrategy threads(cpus(3));
  check(threads, 0, {});
  for (const Overlap overlap : {Overlap::never, Overlap::always}) {
    run_workers({.workers = 2, .replicas = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
      check(strategy, 2 * strategy.worker_index(), {.overlap = overlap});
    });
  }
}

/// Calls use(step) for each way to step `sgd` over `w`; all replicas have the same gradient.
template <class Use>
void in_every_way(Strategy& strategy, const Variable& w, const DistributedOptimizer& sgd,
                  const Use& use) {
  const auto ones = [] { return torch::ones({2}); };
  use([&] {
    strategy.run(
        [&](ReplicaContext& replica, Optimizer& optimizer) {
          w.read().sum().backward();
          optimizer.apply(replica);
        },
        sgd);
  });
  use([&] { strategy.run([&] { sgd.apply_gradients({{ones(), w}}); }); });
  use([&] {
    const auto gradients = strategy.run(ones);
    sgd.distributed_apply(strategy, {{gradients, w}});
  });
}

torch::optim::SGDOptions with_momentum() { return rate(0.1).momentum(0.5); }

void set_momentum(Optimizer& optimizer, double momentum) {
  auto& options = optimizer.local().param_groups()[0].options();
  static_cast<torch::optim::SGDOptions&>(options).momentum(momentum);
}

TEST(ChangedParameters, AnOptionOfOneCopyAloneIsNamed) {
  MirroredStrategy strategy(cpus(3));
  const auto scope = strategy.scope();
  const Variable w = trainable("w", torch::zeros({2}));
  const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, with_momentum());
  in_every_way(strategy, w, sgd, [&](const auto& step) {
    step();
    const double before = number(w[0][0]);
    set_momentum(sgd.select_replica(1), 0.25);
    EXPECT_THAT(wrong_context(step),
                AllOf(HasSubstr("replica 1 has another momentum (group 0): 0.25, and replica 0 has "
                                "0.5"),
                      HasSubstr("Set it on every replica")));
    for (int c = 0; c < w.size(); ++c) EXPECT_EQ(number(w[c][0]), before) << c;
    sgd.reset();
    for (int c = 0; c < w.size(); ++c) set_momentum(sgd.select_replica(c), 0.25);
    step();
    sgd.check_parameters();
    for (int c = 0; c < w.size(); ++c) set_momentum(sgd.select_replica(c), 0.5);
  });
}

TEST(ChangedParameters, AnOptionOfOneWorkerAloneIsNamed) {
  for (const int way : {0, 1, 2}) {
    expect_every_worker_throws<Mismatch>(
        {.workers = 2, .replicas = 2},
        [&](MultiWorkerMirroredStrategy& strategy) {
          const auto scope = strategy.scope();
          const Variable w = trainable("w", torch::zeros({2}));
          const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, with_momentum());
          int i = 0;
          in_every_way(strategy, w, sgd, [&](const auto& step) {
            if (i++ != way) return;
            step();
            for (int r = 0; r < 2; ++r) set_momentum(sgd.select_replica(r), 0.25);
            step();  // the same everywhere
            if (!strategy.is_chief()) {
              for (int r = 0; r < 2; ++r) set_momentum(sgd.select_replica(r), 0.75);
            }
            step();
          });
        },
        [](const Mismatch& error) {
          EXPECT_THAT(error.what(), AllOf(HasSubstr("lr 0.1, momentum 0.25"),
                                          HasSubstr("lr 0.1, momentum 0.75")));
        });
  }
}

std::string saved(Optimizer& optimizer) {
  std::ostringstream text;
  torch::save(optimizer.local(), text);
  return text.str();
}

void load_into(Optimizer& optimizer, const std::string& state) {
  std::istringstream text(state);
  torch::load(optimizer.local(), text);
}

template <class Kind, class Options>
void expect_state_of_one_copy_is_found(const Options& options) {
  MirroredStrategy strategy(cpus(3));
  const auto scope = strategy.scope();
  const Variable w = trainable("w", torch::zeros({2}));
  const auto optimizer =
      strategy.optimizer<Kind>(std::vector{w}, options, GradientOptions{.check_every = 0});
  in_every_way(strategy, w, optimizer, [&](const auto& step) {
    step();
    const std::string old = saved(optimizer.select_replica(1));
    step();
    const std::vector<Tensor> before = values_of({w});
    const std::int64_t iterations = optimizer.iterations();
    load_into(optimizer.select_replica(1), old);
    for (int i = 0; i < 2; ++i) {  // until it is mended
      EXPECT_THAT(error_of<Mismatch>(Code::data_loss, step),
                  AllOf(HasSubstr("apply: the optimizer's state for parameter w of replica 1"),
                        HasSubstr("Load it into local() of every replica"),
                        HasSubstr("reset() of the optimizer")));
    }
    EXPECT_EQ(optimizer.iterations(), iterations);
    expect_equal(values_of({w}), before);
    for (int r = 0; r < 3; ++r) load_into(optimizer.select_replica(r), old);
    optimizer.reset();
    step();
    optimizer.check_parameters();
    // A write to one of its tensors, too.
    const auto state = optimizer.variables();
    state[0].components[2].add_(1);
    EXPECT_THAT(error_of<Mismatch>(Code::data_loss, step), HasSubstr("parameter w of replica 2"));
    state[0].components[2].copy_(state[0].components[0]);
    optimizer.reset();
    step();
    optimizer.check_parameters();
  });
}

TEST(ChangedState, LoadedIntoOneCopyIsFoundAtTheNextApply) {
  expect_state_of_one_copy_is_found<torch::optim::SGD>(with_momentum());
  expect_state_of_one_copy_is_found<torch::optim::Adam>(torch::optim::AdamOptions(0.1));
  expect_state_of_one_copy_is_found<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.1));
}

TEST(ChangedState, LoadedOnTheChiefOnlyIsFoundByEveryWorker) {
  for (const int way : {0, 1, 2}) {
    expect_every_worker_throws<Mismatch>(
        {.workers = 3, .replicas = 2},
        [&](MultiWorkerMirroredStrategy& strategy) {
          const auto scope = strategy.scope();
          const Variable w = trainable("w", torch::zeros({2}));
          const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, with_momentum());
          int i = 0;
          in_every_way(strategy, w, sgd, [&](const auto& step) {
            if (i++ != way) return;
            step();
            const std::string old = saved(sgd.select_replica(0));
            step();
            for (int r = 0; r < 2; ++r) load_into(sgd.select_replica(r), old);
            step();  // the same everywhere
            if (strategy.is_chief()) {
              for (int r = 0; r < 2; ++r) load_into(sgd.select_replica(r), old);
            }
            step();
          });
        },
        [](const Mismatch& error) {
          EXPECT_THAT(error.what(), HasSubstr("state for parameter w of replica 0 (worker 0)"));
          EXPECT_EQ(error.culprits(), std::vector<int>{0});
        });
  }
}

TEST(ChangedParameters, AreFoundWithGradientsByHand) {
  const auto change = [](const Variable& w) {
    const torch::NoGradGuard not_recorded;
    Tensor(w[1]).add_(1);
  };
  const auto named = HasSubstr("apply: parameter w of replica 1 (worker 0) differs");
  {
    MirroredStrategy strategy(cpus(3));
    const auto scope = strategy.scope();
    const Variable w = trainable("w", torch::zeros({2}));
    const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(0.1));
    in_every_way(strategy, w, sgd, [&](const auto& step) {
      step();
      const double before = number(w[0][0]);
      change(w);
      EXPECT_THAT(error_of<Mismatch>(Code::data_loss, step), named);
      EXPECT_EQ(number(w[0][0]), before) << "stepped after all";
      w.assign(torch::zeros({2}));
      sgd.reset();
      step();
    });
  }
  for (const int way : {0, 1, 2}) {
    expect_every_worker_throws<Mismatch>(
        {.workers = 2, .replicas = 2},
        [&](MultiWorkerMirroredStrategy& strategy) {
          const auto scope = strategy.scope();
          const Variable w = trainable("w", torch::zeros({2}));
          const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(0.1));
          int i = 0;
          in_every_way(strategy, w, sgd, [&](const auto& step) {
            if (i++ != way) return;
            step();
            if (strategy.is_chief()) change(w);
            step();
          });
        },
        [&](const Mismatch& error) { EXPECT_THAT(error.what(), named); });
  }
}

/// SGD of which one copy's second step fails.
struct Failing : torch::optim::SGD {
  Failing(const std::vector<torch::optim::OptimizerParamGroup>& groups,
          const torch::optim::SGDOptions& options)
      : SGD(groups, options) {}
  Tensor step(LossClosure closure = nullptr) override {
    if (steps++ == 1 && fails) throw std::runtime_error("a step that fails");
    return SGD::step(closure);
  }
  int steps = 0;
  bool fails = false;
};

TEST(ChangedParameters, AStepThatFailsOnOneCopyIsFoundAtTheNextApply) {
  MirroredStrategy strategy(cpus(3));
  const auto scope = strategy.scope();
  const Variable w = trainable("w", torch::zeros({2}));
  const auto sgd = strategy.optimizer<Failing>(std::vector{w}, rate(0.1));
  dynamic_cast<Failing&>(sgd.select_replica(2).local()).fails = true;
  const auto step = [&] {
    strategy.run(
        [&](ReplicaContext& replica, Optimizer& optimizer) {
          w.read().sum().backward();
          optimizer.apply(replica);
        },
        sgd);
  };
  step();
  EXPECT_THROW(step(), std::runtime_error);
  EXPECT_EQ(sgd.iterations(), 1);
  EXPECT_THAT(error_of<Mismatch>(Code::data_loss, step),
              AllOf(HasSubstr("parameter w of replica 2 (worker 0) differs"),
                    HasSubstr("or a step has failed on some of them only")));
  w.assign(torch::zeros({2}));
  sgd.reset();
  step();
  sgd.check_parameters();
  // Three replicas with a gradient of one each: those of the failed step are not used again.
  EXPECT_NEAR(number(w[0][0]), -0.3, 1e-6);
}

TEST(ChangedParameters, AnotherElementTypeAfterTheFirstStepIsNamed) {
  const auto check = [](Strategy& strategy, const GradientOptions& options) {
    const auto scope = strategy.scope();
    const auto net = strategy.create<TwoLayers>();
    const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(0.1), options);
    train_step(strategy, net, sgd);
    for (int r = 0; r < net.size(); ++r) net[r]->to(torch::kDouble);
    strategy.run(
        [](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
          own->forward(rows_of(0).to(torch::kDouble)).sum().backward();
          optimizer.apply(replica);
        },
        net, sgd);
  };
  MirroredStrategy threads(cpus(2));
  EXPECT_THAT(wrong_context([&] { check(threads, {}); }),
              AllOf(HasSubstr(" was Float in the optimizer's first step and is Double now"),
                    HasSubstr("make another optimizer")));
  for (const Overlap overlap : {Overlap::never, Overlap::always}) {
    run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
      try {
        check(strategy, {.overlap = overlap});
        ADD_FAILURE() << "was not seen";
      } catch (const InvalidUsage& error) {
        EXPECT_THAT(error.what(), HasSubstr(" was Float in the optimizer's first step"));
      } catch (const PeerLost&) {  // the other one was first to see it
      }
    });
  }
}

/// Before the first step there is nothing that the type was settled for.
TEST(ChangedParameters, TheElementTypeMayBeChosenBeforeTheFirstStep) {
  const auto check = [](Strategy& strategy) {
    const auto scope = strategy.scope();
    const auto net = strategy.create<TwoLayers>();
    const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(0.1));
    for (int r = 0; r < net.size(); ++r) net[r]->to(torch::kDouble);
    for (int i = 0; i < 3; ++i) {
      strategy.run(
          [](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
            own->forward(rows_of(0).to(torch::kDouble)).sum().backward();
            optimizer.apply(replica);
          },
          net, sgd);
    }
    EXPECT_EQ(sgd.iterations(), 3);
  };
  MirroredStrategy threads(cpus(2));
  check(threads);
  run_workers({.workers = 2}, check);
}

TEST(ChangedParameters, AnOptimizerWithNothingTrainableIsRefused) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto net = strategy.create<TwoLayers>();
  for (int r = 0; r < 2; ++r) {
    for (Tensor& p : net[r]->parameters()) p.requires_grad_(false);
  }
  EXPECT_THAT(wrong_value([&] { strategy.optimizer<torch::optim::SGD>(net, rate(0.1)); }),
              HasSubstr("none of its 4 variables is trainable (the first is a.weight)"));
}

}  // namespace
}  // namespace lockstep
