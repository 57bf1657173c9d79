// What a step tells and lets a program see: the norm and the sums of the gradients, and how they
// are clipped. Weights that the chief has loaded.
#include "lockstep/log.h"
#include "tests/train/optimizer_fixtures.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::run_workers;

template <class F>
void in_every_layout(const F& check) {
  MirroredStrategy threads(cpus(4));
  check(threads, GradientOptions{});
  for (const Overlap overlap : {Overlap::never, Overlap::always}) {
    for (const auto& [workers, replicas] : {std::pair(4, 1), {2, 2}}) {
      run_workers({.workers = workers, .replicas = replicas},
                  [&](MultiWorkerMirroredStrategy& strategy) {
                    check(strategy, GradientOptions{.overlap = overlap});
                  });
    }
  }
}

/// One step of rate 1 with the gradient (3, 4) on each of four replicas: the sum's norm is 20.
StepResult step_of_norm_20(Strategy& strategy, const Variable& w, const GradientOptions& gradients,
                           const ApplyOptions& options) {
  const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(1), gradients);
  std::mutex mutex;
  StepResult first;
  strategy.run(
      [&](ReplicaContext& replica, Optimizer& optimizer) {
        (w.read() * torch::tensor({3.0, 4.0}, torch::kDouble)).sum().backward();
        const StepResult result = optimizer.apply(replica, options);
        const std::lock_guard lock(mutex);
        first = result;
      },
      sgd);
  return first;
}

Variable two_doubles() { return trainable("w", torch::zeros({2}, torch::kDouble)); }

TEST(StepResult, TellsTheNormOfTheSumsIfAsked) {
  in_every_layout([](Strategy& strategy, const GradientOptions& gradients) {
    const auto scope = strategy.scope();
    const Variable w = two_doubles();
    const StepResult quiet = step_of_norm_20(strategy, w, gradients, {});
    EXPECT_TRUE(quiet.taken);
    EXPECT_FALSE(quiet.global_norm.has_value());
    const StepResult told = step_of_norm_20(strategy, w, gradients, {.global_norm = true});
    EXPECT_DOUBLE_EQ(told.global_norm.value(), 20);
    EXPECT_EQ(numbers(w[0]), (std::vector<double>{-24, -32}));
  });
}

TEST(StepResult, ClipsByEitherFormula) {
  in_every_layout([](Strategy& strategy, const GradientOptions& gradients) {
    const auto scope = strategy.scope();
    {
      const Variable w = two_doubles();
      const auto result = step_of_norm_20(strategy, w, gradients, {.clip_global_norm = 5.0});
      EXPECT_DOUBLE_EQ(result.global_norm.value(), 20);  // before
      EXPECT_DOUBLE_EQ(w[0][0].item<double>(), -12 * (5.0 / 20));
    }
    {
      const Variable w = two_doubles();
      step_of_norm_20(strategy, w, gradients, {.clip_grad_norm = 5.0});
      // What torch makes of the sum.
      const Tensor alone = torch::zeros({2}, torch::kDouble).requires_grad_(true);
      alone.mutable_grad() = torch::tensor({12.0, 16.0}, torch::kDouble);
      torch::nn::utils::clip_grad_norm_(std::vector{alone}, 5.0);
      EXPECT_DOUBLE_EQ(w[0][0].item<double>(), -alone.grad()[0].item<double>());
      EXPECT_NE(w[0][0].item<double>(), -3);
    }
    {
      const Variable w = two_doubles();
      step_of_norm_20(strategy, w, gradients, {.clip_global_norm = 20.0});
      EXPECT_EQ(numbers(w[0]), (std::vector<double>{-12, -16}));
    }
  });
}

TEST(StepResult, OneFormulaAtATimeAndAPositiveLimit) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const Variable w = two_doubles();
  EXPECT_THAT(wrong_value([&] {
                step_of_norm_20(strategy, w, {}, {.clip_global_norm = 1, .clip_grad_norm = 1});
              }),
              AllOf(HasSubstr("TensorFlow's formula"), HasSubstr("torch's")));
  EXPECT_THAT(wrong_value([&] { step_of_norm_20(strategy, w, {}, {.clip_grad_norm = 0}); }),
              HasSubstr("clip_grad_norm is 0"));
}

TEST(StepResult, LetsAProgramSeeAndChangeTheSums) {
  in_every_layout([](Strategy& strategy, const GradientOptions& gradients) {
    const auto scope = strategy.scope();
    const Variable w = two_doubles();
    int calls = 0;  // one a worker
    const ApplyOptions options{.inspect = [&](const GradientsAndVariables& sums) {
      ++calls;
      ASSERT_EQ(sums.size(), 1U);
      EXPECT_EQ(sums[0].second.name(), "w");
      EXPECT_EQ(numbers(sums[0].first), (std::vector<double>{12, 16}));
      sums[0].first.clamp_(-1, 13);
    }};
    step_of_norm_20(strategy, w, gradients, options);
    EXPECT_EQ(calls, 1);
    for (int c = 0; c < w.size(); ++c) {
      EXPECT_EQ(numbers(w[c]), (std::vector<double>{-12, -13})) << c;
    }
  });
}

TEST(StepResult, IsThatOfGradientsByHandToo) {
  in_every_layout([](Strategy& strategy, const GradientOptions& gradients) {
    const auto scope = strategy.scope();
    const Tensor gradient = torch::tensor({3.0, 4.0}, torch::kDouble);
    const auto each = strategy.run([&] { return gradient.clone(); });
    int calls = 0;  // one a worker
    const ApplyOptions clipped{.clip_global_norm = 5.0,
                               .inspect = [&](const GradientsAndVariables& sums) {
                                 ++calls;
                                 ASSERT_EQ(sums.size(), 1U);
                                 EXPECT_EQ(numbers(sums[0].first), (std::vector<double>{12, 16}));
                               }};
    const Variable w = two_doubles();
    const Variable other = trainable("other", torch::ones({3}));
    const auto sgd =
        strategy.optimizer<torch::optim::SGD>(std::vector{w, other}, rate(1), gradients);
    const StepResult told = sgd.distributed_apply(strategy, {{each, w}}, clipped);
    EXPECT_TRUE(told.taken);
    EXPECT_DOUBLE_EQ(told.global_norm.value(), 20);
    EXPECT_EQ(numbers(w[0]), (std::vector<double>{-3, -4}));
    EXPECT_FALSE(sgd.distributed_apply(strategy, {{each, w}}).global_norm.has_value());
    strategy.run(
        [&](ReplicaContext&, Optimizer& optimizer) {
          const StepResult own = optimizer.apply_gradients({{gradient, w}}, clipped);
          EXPECT_DOUBLE_EQ(own.global_norm.value(), 20);
          EXPECT_DOUBLE_EQ(
              sgd.apply_gradients({{gradient, w}}, {.global_norm = true}).global_norm.value(), 20);
        },
        sgd);
    EXPECT_EQ(calls, 2);
    EXPECT_EQ(numbers(w[0]), (std::vector<double>{-3 - 12 - 3 - 12, -4 - 16 - 4 - 16}));
    EXPECT_TRUE(other[0].equal(torch::ones({3})));
    sgd.check_parameters();
  });
}

TEST(StepResult, SaysThatAStepWasSkipped) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const Variable w = trainable("w", torch::zeros({1}));
  const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(1),
                                                         {.non_finite = NonFinite::skip});
  for (const double factor : {1.0, std::numeric_limits<double>::infinity(), 1.0}) {
    strategy.run(
        [&](ReplicaContext& replica, Optimizer& optimizer) {
          (w.read() * factor).sum().backward();
          EXPECT_EQ(optimizer.apply(replica).taken, std::isfinite(factor));
        },
        sgd);
    const auto by_hand = strategy.run([&] { return torch::full({1}, factor); });
    EXPECT_EQ(sgd.distributed_apply(strategy, {{by_hand, w}}).taken, std::isfinite(factor));
  }
}

// --- clipping each replica's own -----------------------------------------------------------------

std::string logged_while(const std::function<void()>& body) {
  std::mutex mutex;
  std::string all;
  set_log_sink([&](LogLevel, std::string_view text) {
    const std::lock_guard lock(mutex);
    all += std::string(text) + "\n";
  });
  body();
  set_log_sink({});
  return all;
}

void steps_with_clipped_parts(Strategy& strategy, double limit,
                              const GradientOptions& gradients = {}) {
  const auto scope = strategy.scope();
  const auto net = strategy.create<TwoLayers>();
  const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(0.1), gradients);
  for (int i = 0; i < 3; ++i) {
    strategy.run(
        [&](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
          own->forward(rows_of(replica.replica_id_in_sync_group())).pow(2).sum().backward();
          torch::nn::utils::clip_grad_norm_(own->parameters(), limit);
          optimizer.apply(replica);
        },
        net, sgd);
  }
}

TEST(ClipGradNorm, BeforeApplyIsWarnedOfOnce) {
  const auto warned = [](int replicas, double limit) {
    return logged_while([&] {
      MirroredStrategy strategy(cpus(replicas));
      steps_with_clipped_parts(strategy, limit);
    });
  };
  const std::string text = warned(2, 1e-3);
  EXPECT_THAT(text, AllOf(HasSubstr("between backward and apply()"),
                          HasSubstr("apply(replica, {.clip_grad_norm = ...})")));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_EQ(warned(2, 1e9), "") << "nothing was clipped";
  EXPECT_EQ(warned(1, 1e-3), "") << "one replica's gradients are the sum";
  EXPECT_THAT(logged_while([&] {
                run_workers({.workers = 2}, [](MultiWorkerMirroredStrategy& strategy) {
                  steps_with_clipped_parts(strategy, 1e-3);
                });
              }),
              HasSubstr("clip_grad_norm_ clips one replica's gradients"));
}

/// It would change nothing: the gradients are on their way.
TEST(ClipGradNorm, BeforeApplyIsRefusedIfGradientsAreSentDuringBackward) {
  const GradientOptions overlap{.overlap = Overlap::always, .bucket_bytes = 64};
  for (const int replicas : {1, 2}) {
    std::atomic<int> refused = 0;
    run_workers({.workers = 2, .replicas = replicas}, [&](MultiWorkerMirroredStrategy& strategy) {
      try {
        steps_with_clipped_parts(strategy, 1e-3, overlap);
        ADD_FAILURE() << "was not seen";
      } catch (const InvalidUsage& error) {
        ++refused;
        EXPECT_THAT(error.what(), AllOf(HasSubstr("something was written to .grad of "),
                                        HasSubstr(".clip_grad_norm")));
      } catch (const PeerLost&) {  // the other one was first to see it
      }
    });
    EXPECT_GE(refused, 1);
    run_workers({.workers = 2, .replicas = replicas}, [&](MultiWorkerMirroredStrategy& strategy) {
      steps_with_clipped_parts(strategy, 1e9, overlap);  // nothing was clipped
    });
  }
}

// --- weights that the chief has loaded -----------------------------------------------------------

TEST(SyncParameters, GivesTheChiefsWeightsToEveryCopy) {
  const auto check = [](Strategy& strategy, bool is_chief) {
    const auto scope = strategy.scope();
    const auto net = strategy.create<TwoLayers>();
    const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(0.1));
    const auto step = [&] {
      strategy.run(
          [](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
            own->forward(rows_of(replica.replica_id_in_sync_group())).pow(2).sum().backward();
            optimizer.apply(replica);
          },
          net, sgd);
    };
    step();
    if (is_chief) {
      const torch::NoGradGuard not_recorded;
      for (Tensor& p : net[0]->parameters()) p.fill_(0.5);
    }
    net.sync_parameters();
    for (int r = 0; r < net.size(); ++r) {
      EXPECT_TRUE(net[r]->b->weight.equal(torch::full({2, 3}, 0.5))) << r;
    }
    step();
    step();
    EXPECT_EQ(sgd.iterations(), 3);
    sgd.check_parameters();
  };
  MirroredStrategy threads(cpus(3));
  check(threads, true);
  run_workers({.workers = 2, .replicas = 2},
              [&](MultiWorkerMirroredStrategy& strategy) { check(strategy, strategy.is_chief()); });
}

}  // namespace
}  // namespace lockstep
