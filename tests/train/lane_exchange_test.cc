// Workers of several replicas each: their lanes add up slices of the gradients at the same time.
#include "base/gate.h"
#include "strategy/core.h"
#include "tests/train/optimizer_fixtures.h"

namespace lockstep {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::run_workers;
using testing::TestCluster;

/// Parameters of which some are cut into slices, some go whole, and none has a round size.
std::vector<Variable> ragged() {
  const auto of = [](const char* name, std::int64_t elements, at::ScalarType dtype) {
    return trainable(name, torch::linspace(-1, 1, elements, dtype));
  };
  return {of("large", 50'021, torch::kFloat), of("tiny", 3, torch::kFloat),
          of("double", 9'001, torch::kDouble), of("middle", 17'777, torch::kFloat),
          of("one", 1, torch::kDouble)};
}

/// A gradient of its own for every element, replica and step, with a rounding in every addition.
Tensor loss_of(const std::vector<Variable>& variables, int replica, int step) {
  Tensor loss = torch::zeros({}, torch::kDouble);
  for (const Variable& v : variables) {
    const Tensor own = v.read();
    const Tensor places = torch::arange(own.numel(), own.options().requires_grad(false));
    loss = loss + (own * torch::sin(places * (replica + 1.3) + step)).sum().to(torch::kDouble);
  }
  return loss;
}

/// What a worker's step function does before its backward pass.
using Before = std::function<void(ReplicaContext&, int step)>;

std::vector<Tensor> trained(Strategy& strategy, const GradientOptions& options = {},
                            const RunOptions& how = {}, const Before& before = {}) {
  const auto scope = strategy.scope();
  const std::vector<Variable> variables = ragged();
  const auto sgd =
      strategy.optimizer<torch::optim::SGD>(variables, rate(0.1).momentum(0.9), options);
  for (int step = 0; step < 3; ++step) {
    strategy.run(
        how,
        [&](ReplicaContext& replica, Optimizer& optimizer) {
          if (before) before(replica, step);
          loss_of(variables, replica.replica_id_in_sync_group(), step).backward();
          optimizer.apply(replica);
        },
        sgd);
  }
  sgd.check_parameters();
  return values_of(variables);
}

std::vector<Tensor> trained_by_threads(int replicas) {
  MirroredStrategy threads(cpus(replicas));
  return trained(threads);
}

std::string history_of(Strategy& strategy, int lane) {
  return strategy.core().workers()->session(lane).history();
}

TEST(LaneExchange, GivesTheBitsOfThreads) {
  const GradientOptions ways[] = {{}, {.bucket_bytes = 1}, {.bucket_bytes = 40'000}};
  for (const auto& [workers, replicas] : {std::pair(2, 2), {2, 3}, {3, 2}, {2, 4}}) {
    const std::vector<Tensor> reference = trained_by_threads(workers * replicas);
    for (const GradientOptions& options : ways) {
      run_workers({.workers = workers, .replicas = replicas},
                  [&](MultiWorkerMirroredStrategy& strategy) {
                    expect_equal(trained(strategy, options), reference);
                  });
    }
  }
}

/// One replica at a time means the step function; lanes that wait in a meeting take their slices.
TEST(LaneExchange, DoesNotMindReplicasThatRunOneAfterAnother) {
  const std::vector<Tensor> reference = trained_by_threads(4);
  const RunOptions in_turn{.execution = Execution::sequential};
  for (const bool all : {true, false}) {
    run_workers({.workers = 2, .replicas = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
      const bool here = all || strategy.is_chief();
      expect_equal(trained(strategy, {}, here ? in_turn : RunOptions{}), reference);
    });
  }
}

TEST(LaneExchange, EveryLaneSendsItsSlices) {
  run_workers({.workers = 2, .replicas = 3}, [](MultiWorkerMirroredStrategy& strategy) {
    (void)trained(strategy);
    for (int lane = 0; lane < 3; ++lane) {
      // A third of 50,021 elements, up to a line.
      EXPECT_THAT(history_of(strategy, lane),
                  ContainsRegex("all_reduce sum float32.1667[27].*gradients"))
          << lane;
    }
  });
}

TEST(LaneExchange, IsExplained) {
  run_workers({.workers = 2, .replicas = 2}, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const Variable w = trainable("w", torch::zeros({100, 100}));
    const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(1));
    strategy.run(
        [&](ReplicaContext& replica, Optimizer& optimizer) {
          w.read().sum().backward();
          optimizer.apply(replica);
        },
        sgd);
    EXPECT_THAT(sgd.explain(), HasSubstr("sent after backward, by 2 lanes of each worker\n"));
    EXPECT_THAT(sgd.explain(), HasSubstr("40000 bytes, first w, 2 slices\n"));
  });
}

/// Sessions are made once a strategy, whoever needs them, and not for what one lane does alone.
TEST(LaneExchange, SessionsOfLanesAreShared) {
  run_workers({.workers = 2, .replicas = 2}, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const auto made = [&] {
      const std::string history = history_of(strategy, 0);
      int count = 0;
      for (std::size_t at = 0; (at = history.find("sessions of lanes", at)) != std::string::npos;) {
        ++count;
        ++at;
      }
      return count;
    };
    const auto net = strategy.create<TwoLayers>();
    const auto small = strategy.optimizer<torch::optim::SGD>(net, rate(1));
    strategy.run(
        [&](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
          own->forward(rows_of(0)).sum().backward();
          optimizer.apply(replica);
        },
        net, small);
    EXPECT_EQ(made(), 0);
    EXPECT_THAT(small.explain(), Not(HasSubstr("lanes")));
    (void)trained(strategy);
    (void)trained(strategy);
    EXPECT_EQ(made(), 1);
  });
}

/// Worker 1 throws while the lanes of the others are at their slices: each worker has one error.
TEST(LaneExchange, AWorkerThatThrowsIsNamedOnce) {
  for (const int at : {0, 1}) {
    std::atomic<int> lost = 0;
    run_workers({.workers = 3, .replicas = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
      try {
        (void)trained(strategy, {}, {}, [&](ReplicaContext& replica, int step) {
          if (step == at && replica.replica_id_in_sync_group() == 3) {
            throw std::runtime_error("no more rows");
          }
        });
        ADD_FAILURE() << "worker " << strategy.worker_index() << " went on";
      } catch (const PeerLost& error) {
        ++lost;
        EXPECT_EQ(error.culprits(), std::vector<int>{1});
        EXPECT_THAT(error.what(), HasSubstr("no more rows"));
        EXPECT_TRUE(strategy.last_errors().empty());
      } catch (const std::runtime_error& error) {
        EXPECT_EQ(strategy.worker_index(), 1);
        EXPECT_THAT(error.what(), HasSubstr("no more rows"));
      }
    });
    EXPECT_EQ(lost, 2);
  }
}

TEST(LaneExchange, AWorkerThatAsksForSomethingElseIsFound) {
  expect_every_worker_throws<Mismatch>(
      {.workers = 2, .replicas = 2},
      [](MultiWorkerMirroredStrategy& strategy) {
        (void)trained(strategy, {}, {}, [&](ReplicaContext& replica, int step) {
          if (step < 1 || strategy.is_chief()) return;
          (void)replica.all_reduce(ReduceOp::sum, torch::ones({2}));
        });
      },
      [](const Mismatch& error) {
        EXPECT_THAT(error.what(), HasSubstr("apply: gradients float64"));
      });
}

TEST(LaneExchange, AWorkerThatDoesNotComeIsWaitedForSoLong) {
  TestCluster cluster{.workers = 2, .replicas = 2};
  cluster.options.timeout_seconds = 3;  // of every call, also while the workers are made
  std::atomic<bool> timed_out = false;
  Gate gate;
  run_workers(cluster, [&](MultiWorkerMirroredStrategy& strategy) {
    const auto wait_for_the_other = [&](ReplicaContext&, int step) {
      if (step == 0 || strategy.is_chief()) return;
      EXPECT_TRUE(
          gate.wait([&] { return timed_out.load(); }, Deadline::after(std::chrono::seconds(60))));
    };
    try {
      (void)trained(strategy, {}, {}, wait_for_the_other);
      ADD_FAILURE() << "worker " << strategy.worker_index() << " went on";
    } catch (const Timeout& error) {
      EXPECT_EQ(error.culprits(), std::vector<int>{1});
      EXPECT_THAT(error.what(), HasSubstr("apply: gradients float64"));
    }
    timed_out = true;
    gate.notify();
  });
}

}  // namespace
}  // namespace lockstep
