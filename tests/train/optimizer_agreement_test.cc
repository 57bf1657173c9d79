// What all replicas of all workers must be alike in, and find out together: the optimizers'
// options, the parameters, and whether gradients are finite.
#include <limits>
#include <mutex>

#include "tests/train/optimizer_fixtures.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::run_workers;

// --- options -------------------------------------------------------------------------------------

/// What both of two workers say of optimizers that make() gives them.
template <class Make>
void expect_found(const Make& make, const std::string& words) {
  expect_every_worker_throws<Mismatch>(
      {.workers = 2},
      [&](MultiWorkerMirroredStrategy& strategy) {
        const auto scope = strategy.scope();
        const auto net = strategy.create<TwoLayers>();
        make(strategy, net.variables(), strategy.worker_index() == 1);
      },
      [&](const Mismatch& error) {
        EXPECT_THAT(error.what(), HasSubstr(words));
        EXPECT_EQ(error.culprits(), std::vector<int>{1});
      });
}

TEST(OptimizerAgreement, AnotherOptionIsNamedWithBothValues) {
  using namespace torch::optim;
  const auto sgd = [](const SGDOptions& first, const SGDOptions& second) {
    return [=](Strategy& strategy, const std::vector<Variable>& variables, bool other) {
      strategy.optimizer<SGD>(variables, other ? second : first);
    };
  };
  expect_found(sgd(rate(0.1), rate(0.2)),
               "worker 0 has group 0 lr 0.1, worker 1 has group 0 lr 0.2");
  expect_found(sgd(rate(1).momentum(0.9), rate(1).momentum(0.8)),
               "worker 0 has group 0 momentum 0.9, worker 1 has group 0 momentum 0.8");
  expect_found(sgd(rate(1).weight_decay(0.5), rate(1)), "group 0 weight_decay 0.5");
  expect_found(sgd(rate(1).momentum(0.9), rate(1).momentum(0.9).nesterov(true)),
               "worker 1 has group 0 nesterov true");
  expect_found(
      [](Strategy& strategy, const std::vector<Variable>& variables, bool other) {
        strategy.optimizer<Adam>(variables, AdamOptions(0.1).betas({0.9, other ? 0.99 : 0.999}));
      },
      "worker 0 has group 0 betas (0.9, 0.999), worker 1 has group 0 betas (0.9, 0.99)");
  expect_found(
      [](Strategy& strategy, const std::vector<Variable>& variables, bool other) {
        strategy.optimizer<LBFGS>(
            variables, other ? LBFGSOptions(1).line_search_fn("strong_wolfe") : LBFGSOptions(1));
      },
      "worker 0 has group 0 line_search_fn none, worker 1 has group 0 line_search_fn strong_wolfe");
}

TEST(OptimizerAgreement, AnotherGroupIsNamed) {
  using torch::optim::SGD;
  expect_found(
      [](Strategy& strategy, const std::vector<Variable>& v, bool other) {
        const std::vector<ParameterGroup> groups = {{{v[0], v[1]}},
                                                    {{v[2], v[3]}, rate(other ? 0.3 : 0.2)}};
        strategy.optimizer<SGD>(groups, rate(0.1));
      },
      "worker 0 has group 1 lr 0.2, worker 1 has group 1 lr 0.3");
  expect_found(
      [](Strategy& strategy, const std::vector<Variable>& v, bool other) {
        const std::vector<ParameterGroup> groups = {
            {other ? std::vector{v[0], v[1], v[2]} : std::vector{v[0], v[1]}},
            {other ? std::vector{v[3]} : std::vector{v[2], v[3]}, rate(0.2)}};
        strategy.optimizer<SGD>(groups, rate(0.1));
      },
      "worker 0 has group 0 number of variables 2, worker 1 has group 0 number of variables 3");
}

TEST(OptimizerAgreement, AnotherGradientOptionIsNamed) {
  expect_found(
      [](Strategy& strategy, const std::vector<Variable>& variables, bool other) {
        strategy.optimizer<torch::optim::SGD>(variables, rate(1),
                                              {.check_every = other ? 10 : 100});
      },
      "worker 0 has check_every 100, worker 1 has check_every 10");
}

// --- what scales a step --------------------------------------------------------------------------

/// Three steps, of which the second has other options on worker 1 alone.
struct Scaled {
  ApplyOptions apply = {};
  std::optional<std::int64_t> batch = 16;
  std::optional<double> rate = {};  // set before the step
};

void take_steps(MultiWorkerMirroredStrategy& strategy, Overlap overlap, const Scaled& other) {
  const auto scope = strategy.scope();
  const auto net = strategy.create<TwoLayers>();
  const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(0.1), {.overlap = overlap});
  for (int step = 0; step < 3; ++step) {
    const Scaled own = step == 1 && strategy.worker_index() == 1 ? other : Scaled{};
    if (own.rate) sgd.set_learning_rate(*own.rate);
    strategy.run(
        RunOptions{.global_batch_size = own.batch},
        [&](ReplicaContext& replica, TwoLayers& mine, Optimizer& optimizer) {
          mine->forward(rows_of(0)).sum().backward();
          optimizer.apply(replica, own.apply);
        },
        net, sgd);
  }
}

void expect_scale_is_compared(const Scaled& other, const std::string& words) {
  for (const Overlap overlap : {Overlap::never, Overlap::always}) {
    SCOPED_TRACE(words + (overlap == Overlap::always ? ", during backward" : ", after backward"));
    expect_every_worker_throws<Mismatch>(
        {.workers = 2},
        [&](MultiWorkerMirroredStrategy& strategy) { take_steps(strategy, overlap, other); },
        [&](const Mismatch& error) { EXPECT_THAT(error.what(), HasSubstr(words)); });
  }
}

TEST(OptimizerAgreement, WhatScalesAStepIsComparedInEachStep) {
  expect_scale_is_compared({.apply = {.clip_global_norm = 1.5}}, "clip_global_norm 1.5");
  expect_scale_is_compared({.apply = {.clip_grad_norm = 1.5}}, "clip_grad_norm 1.5");
  expect_scale_is_compared({.batch = 32}, "batch 32");
  expect_scale_is_compared({.batch = {}}, "batch 16");
  expect_scale_is_compared({.rate = 0.3}, "lr 0.3");
}

TEST(OptimizerAgreement, OptionsThatScaleNothingMayDiffer) {
  for (const Overlap overlap : {Overlap::never, Overlap::always}) {
    run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
      const auto look = [](const GradientsAndVariables&) {};
      take_steps(strategy, overlap, {.apply = {.global_norm = true, .inspect = look}});
    });
  }
}

TEST(OptimizerAgreement, TheClippingOfGradientsByHandIsCompared) {
  expect_every_worker_throws<Mismatch>(
      {.workers = 2},
      [](MultiWorkerMirroredStrategy& strategy) {
        const auto scope = strategy.scope();
        const Variable w = trainable("w", torch::ones({2}));
        const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(0.1));
        const auto ones = strategy.run([] { return torch::ones({2}); });
        sgd.distributed_apply(strategy, {{ones, w}},
                              {.clip_grad_norm = 1.0 + strategy.worker_index()});
      },
      [](const Mismatch& error) { EXPECT_THAT(error.what(), HasSubstr("clip_grad_norm 2")); });
}

TEST(OptimizerAgreement, TheRateOfGradientsByHandIsCompared) {
  expect_every_worker_throws<Mismatch>(
      {.workers = 2},
      [](MultiWorkerMirroredStrategy& strategy) {
        const auto scope = strategy.scope();
        const Variable w = trainable("w", torch::ones({2}));
        const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(0.1));
        if (strategy.worker_index() == 1) sgd.set_learning_rate(0.3);
        const auto ones = strategy.distribute_values_from_function(
            [](const ValueContext&) { return torch::ones({2}); });
        sgd.distributed_apply(strategy, {{ones, w}});
      },
      [](const Mismatch& error) { EXPECT_THAT(error.what(), HasSubstr("lr 0.3")); });
}

// --- parameters ----------------------------------------------------------------------------------

/// A replica of three workers is written to; every worker, itself included, names it.
void expect_named(int diverged) {
  expect_every_worker_throws<Mismatch>(
      {.workers = 3},
      [&](MultiWorkerMirroredStrategy& strategy) {
        const auto scope = strategy.scope();
        const auto net = strategy.create<TwoLayers>();
        const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(0.1), {.check_every = 2});
        for (int i = 0; i < 2; ++i) {
          strategy.run(
              [&](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
                own->forward(rows_of(0)).sum().backward();
                optimizer.apply(replica);
                if (i == 0 && replica.replica_id_in_sync_group() == diverged) {
                  const torch::NoGradGuard not_recorded;
                  own->b->weight.add_(1);
                }
              },
              net, sgd);
        }
      },
      [&](const Mismatch& error) {
        EXPECT_EQ(error.code(), Code::data_loss);
        EXPECT_EQ(error.culprits(), std::vector<int>{diverged});
        EXPECT_THAT(error.what(),
                    HasSubstr(fmt::format("parameter b.weight of replica {} (worker "
                                          "{}) differs from replica {}'s",
                                          diverged, diverged, diverged == 0 ? 1 : 0)));
      });
}

TEST(OptimizerAgreement, EveryWorkerNamesTheOneThatDiverged) {
  for (const int diverged : {0, 1, 2}) expect_named(diverged);
}

/// A hundred steps with the default options. The last worker writes to its copy in step 60, in a
/// way that no counter of libtorch shows. What every worker says.
std::string found_by_default(int workers) {
  std::string found;
  std::mutex mutex;
  expect_every_worker_throws<Mismatch>(
      {.workers = workers},
      [&](MultiWorkerMirroredStrategy& strategy) {
        const auto scope = strategy.scope();
        const auto net = strategy.create<TwoLayers>();
        const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(0.001));
        for (int i = 0; i < 101; ++i) {
          strategy.run(
              [&](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
                own->forward(rows_of(0)).sum().backward();
                optimizer.apply(replica);
                if (i == 60 && strategy.worker_index() == workers - 1) own->b->weight.data()[0] = 7;
              },
              net, sgd);
          EXPECT_LT(i, 99) << "the difference was not found";
        }
      },
      [&](const Mismatch& error) {
        EXPECT_EQ(error.code(), Code::data_loss);
        const std::lock_guard lock(mutex);
        found = error.what();
        if (workers > 2) {
          EXPECT_EQ(error.culprits(), std::vector<int>{workers - 1});
        } else {
          EXPECT_EQ(error.culprits(), (std::vector<int>{0, 1}));
        }
      });
  return found;
}

TEST(OptimizerAgreement, ParametersAreComparedEveryHundredStepsByDefault) {
  EXPECT_THAT(
      found_by_default(3),
      AllOf(HasSubstr("They parted within steps 1 to 100"), HasSubstr("b.weight of replica 2"),
            HasSubstr("replicas 0, 1 have digest "), HasSubstr("replica 2 has digest ")));
  // Of two nobody knows which is right.
  EXPECT_THAT(
      found_by_default(2),
      AllOf(HasSubstr("They parted within steps 1 to 100"), HasSubstr("b.weight of replica"),
            HasSubstr("replica 0 has digest "), HasSubstr("replica 1 has digest ")));
}

// --- gradients that are not finite ---------------------------------------------------------------

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Four steps; in the second, the last replica's gradient of b.bias has this factor.
std::vector<Tensor> steps_with(Strategy& strategy, const GradientOptions& options, double factor,
                               std::int64_t expected_steps) {
  const auto scope = strategy.scope();
  const auto net = strategy.create<TwoLayers>();
  const auto adam =
      strategy.optimizer<torch::optim::Adam>(net, torch::optim::AdamOptions(0.1), options);
  for (int i = 0; i < 4; ++i) {
    strategy.run(
        [&](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
          const int id = replica.replica_id_in_sync_group();
          Tensor loss = own->forward(rows_of(id)).pow(2).sum();
          if (i == 1 && id + 1 == replica.num_replicas_in_sync()) {
            loss = loss + own->b->bias[1] * factor;
          }
          loss.backward();
          optimizer.apply(replica);
        },
        net, adam);
  }
  EXPECT_EQ(adam.iterations(), expected_steps);
  EXPECT_EQ(adam.skipped(), 4 - expected_steps);
  for (const OptimizerVariable& state : adam.variables()) {
    if (state.name != "beta1_power") continue;
    EXPECT_FLOAT_EQ(state.components[0].item<float>(),
                    static_cast<float>(std::pow(0.9, 1.0 + static_cast<double>(expected_steps))));
  }
  adam.check_parameters();
  return values_of(net.variables());
}

/// The same without the second step.
std::vector<Tensor> three_steps(Strategy& strategy) {
  const auto scope = strategy.scope();
  const auto net = strategy.create<TwoLayers>();
  const auto adam = strategy.optimizer<torch::optim::Adam>(net, torch::optim::AdamOptions(0.1));
  for (int i = 0; i < 3; ++i) {
    strategy.run(
        [&](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
          own->forward(rows_of(replica.replica_id_in_sync_group())).pow(2).sum().backward();
          optimizer.apply(replica);
        },
        net, adam);
  }
  return values_of(net.variables());
}

TEST(NonFiniteGradients, AreSkippedByAllReplicasAlike) {
  MirroredStrategy threads(cpus(4));
  const auto reference = three_steps(threads);
  for (const double factor : {kNan, kInfinity, -kInfinity}) {
    expect_equal(steps_with(threads, {.non_finite = NonFinite::skip}, factor, 3), reference);
  }
  for (const Overlap overlap : {Overlap::never, Overlap::always}) {
    for (const auto& [workers, replicas] : {std::pair(4, 1), {2, 2}}) {
      run_workers(
          {.workers = workers, .replicas = replicas}, [&](MultiWorkerMirroredStrategy& strategy) {
            const GradientOptions options{.overlap = overlap, .non_finite = NonFinite::skip};
            expect_equal(steps_with(strategy, options, kNan, 3), reference);
          });
    }
  }
}

TEST(NonFiniteGradients, FiniteOnesTakeEveryStep) {
  MirroredStrategy threads(cpus(2));
  const auto allowed = steps_with(threads, {}, 1, 4);
  expect_equal(steps_with(threads, {.non_finite = NonFinite::skip}, 1, 4), allowed);
  expect_equal(steps_with(threads, {.non_finite = NonFinite::error}, 1, 4), allowed);
  EXPECT_TRUE(torch::isnan(steps_with(threads, {}, kNan, 4)[3][1]).item<bool>());
}

TEST(NonFiniteGradients, AreAnErrorThatEveryWorkerSees) {
  const auto check = [](const DataError& error, int culprit) {
    EXPECT_THAT(error.what(), HasSubstr("after 1 steps the gradient of b.bias"));
    EXPECT_THAT(error.what(),
                HasSubstr(fmt::format("1 of 2 elements, the first (nan) at 1; replica "
                                      "{} computed it. No copy was",
                                      culprit)));
  };
  MirroredStrategy threads(cpus(2));
  try {
    steps_with(threads, {.non_finite = NonFinite::error}, kNan, 4);
    ADD_FAILURE();
  } catch (const DataError& error) {
    check(error, 1);
  }
  for (const Overlap overlap : {Overlap::never, Overlap::always}) {
    for (const auto& [workers, replicas] : {std::pair(3, 1), {2, 2}}) {
      const int last = workers * replicas - 1;
      expect_every_worker_throws<DataError>(
          {.workers = workers, .replicas = replicas},
          [&](MultiWorkerMirroredStrategy& strategy) {
            steps_with(strategy, {.overlap = overlap, .non_finite = NonFinite::error}, kNan, 4);
          },
          [&](const DataError& error) { check(error, last); });
    }
  }
}

TEST(NonFiniteGradients, AreFoundInEveryKind) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto table =
      strategy.create<torch::nn::Embedding>(torch::nn::EmbeddingOptions(6, 2).sparse(true));
  const auto sgd =
      strategy.optimizer<torch::optim::SGD>(table, rate(1), {.non_finite = NonFinite::skip});
  strategy.run(
      [](ReplicaContext& replica, torch::nn::Embedding& own, Optimizer& optimizer) {
        (own->forward(torch::tensor({0, 1})) * kInfinity).sum().backward();
        optimizer.apply(replica);
      },
      table, sgd);
  EXPECT_EQ(sgd.skipped(), 1);
  // Each replica's is finite, their sum is not.
  strategy.run(
      [](ReplicaContext& replica, torch::nn::Embedding& own, Optimizer& optimizer) {
        (own->forward(torch::tensor({0})) * 3e38).sum().backward();
        optimizer.apply(replica);
      },
      table, sgd);
  EXPECT_EQ(sgd.skipped(), 2);

  for (const auto dtype : {torch::kBFloat16, torch::kDouble, torch::kComplexFloat}) {
    const Variable w = trainable("w", torch::zeros({2}, dtype));
    const auto by_hand = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(1),
                                                               {.non_finite = NonFinite::skip});
    for (const double value : {1.0, kNan}) {
      const auto gradients = strategy.run([&] { return torch::full({2}, value, dtype); });
      by_hand.distributed_apply(strategy, {{gradients, w}});
    }
    EXPECT_EQ(by_hand.iterations(), 1) << dtype;
    EXPECT_EQ(by_hand.skipped(), 1) << dtype;
  }
}

TEST(NonFiniteGradients, AStepWithAClosureCannotBeSkipped) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto net = strategy.create<TwoLayers>();
  const auto run = [&](NonFinite policy, double factor) {
    const auto lbfgs = strategy.optimizer<torch::optim::LBFGS>(net, torch::optim::LBFGSOptions(1),
                                                               {.non_finite = policy});
    strategy.run(
        [&](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
          optimizer.apply(replica, [&] {
            Tensor loss = (own->forward(rows_of(0)) * factor).pow(2).sum();
            loss.backward();
            return loss;
          });
        },
        net, lbfgs);
  };
  EXPECT_THAT(wrong_context([&] { run(NonFinite::skip, 1); }), HasSubstr("cannot be skipped"));
  EXPECT_THAT(error_of<DataError>(Code::data_loss, [&] { run(NonFinite::error, kNan); }),
              AllOf(HasSubstr("gradient of a.weight"), HasSubstr("may have moved"),
                    Not(HasSubstr("No copy was changed")), Not(HasSubstr("skip"))));
  run(NonFinite::error, 1);
}

// --- calls that are not the same -----------------------------------------------------------------

/// The Mismatch of two workers, of which the first does fn(strategy, sgd, w) and the other waits.
template <class F>
std::string against_a_barrier(const F& fn) {
  try {
    run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
      const auto scope = strategy.scope();
      const Variable w = trainable("w", torch::zeros({2}));
      const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(1));
      const auto step = [&](ReplicaContext& replica, Optimizer& optimizer) {
        w.read().sum().backward();
        optimizer.apply(replica);
      };
      strategy.run(step, sgd);
      if (strategy.is_chief()) {
        fn(strategy, sgd, w);
      } else {
        strategy.barrier();
      }
    });
  } catch (const Mismatch& error) {
    return error.what();
  }
  return "no Mismatch";
}

TEST(OptimizerAgreement, ADisagreementNamesTheUsersCallAndLine) {
  EXPECT_THAT(
      against_a_barrier([](Strategy& strategy, const DistributedOptimizer&, const Variable& w) {
        strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(1));
      }),
      HasSubstr("rank 0: optimizer at optimizer_agreement_test.cc:"));
  EXPECT_THAT(
      against_a_barrier([](Strategy&, const DistributedOptimizer& sgd, const Variable&) {
        sgd.check_parameters();
      }),
      AllOf(HasSubstr("rank 0: check_parameters"), HasSubstr(" at optimizer_agreement_test.cc:")));
  EXPECT_THAT(
      against_a_barrier([](Strategy& strategy, const DistributedOptimizer& sgd, const Variable& w) {
        const auto gradients = strategy.run([] { return torch::ones({2}); });
        sgd.distributed_apply(strategy, {{gradients, w}});
      }),
      AllOf(HasSubstr("rank 0: distributed_apply"), HasSubstr(" at optimizer_agreement_test.cc:")));
}

/// The Mismatch of two workers that both do fn(strategy, sgd, w, worker).
template <class F>
std::string against_each_other(const F& fn) {
  try {
    run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
      const auto scope = strategy.scope();
      const Variable w = trainable("w", torch::zeros({2}));
      const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(1));
      fn(strategy, sgd, w, strategy.worker_index());
    });
  } catch (const Mismatch& error) {
    return error.what();
  }
  return "no Mismatch";
}

TEST(OptimizerAgreement, AWorkerThatDiffersIsToldWithTheUsersLine) {
  int line = 0;
  const auto at = [&] { return ", at optimizer_agreement_test.cc:" + std::to_string(line); };
  const std::string made = against_each_other(
      [&](Strategy& strategy, const DistributedOptimizer&, const Variable& w, int worker) {
        line = __LINE__ + 1;
        strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(1 + worker));
      });
  EXPECT_THAT(made, HasSubstr("worker 1 has group 0 lr 2" + at()));
  const std::string counted = against_each_other(
      [&](Strategy&, const DistributedOptimizer& sgd, const Variable&, int worker) {
        line = __LINE__ + 1;
        sgd.set_iterations(3 + worker);
      });
  EXPECT_THAT(counted, HasSubstr(at()));
  const std::string compared = against_each_other(
      [&](Strategy&, const DistributedOptimizer& sgd, const Variable& w, int worker) {
        const torch::NoGradGuard not_recorded;
        w[0].add_(worker);
        line = __LINE__ + 1;
        sgd.check_parameters();
      });
  EXPECT_THAT(compared, HasSubstr(at()));
}

}  // namespace
}  // namespace lockstep
