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

TEST(SyncBatchNorm, OfImagesWithChannelsLastIsThatOfTheWholeBatch) {
  const Tensor all = torch::randn({8, 3, 4, 5}).contiguous(torch::MemoryFormat::ChannelsLast);
  expect_as_alone<torch::nn::BatchNorm2d, SyncBatchNorm2d>(all);
  MirroredStrategy strategy(cpus(2));
  const auto net = strategy.create<SyncBatchNorm2d>(3);
  strategy.run(
      [&](SyncBatchNorm2d& own) {
        const Tensor mine = all.clone().requires_grad_();
        const Tensor output = own->forward(mine);
        EXPECT_TRUE(output.is_contiguous(torch::MemoryFormat::ChannelsLast));
        // Gradients of any layout.
        (output * torch::ones({8, 3, 5, 4}).transpose(2, 3)).sum().backward();
        EXPECT_EQ(mine.grad().sizes(), mine.sizes());
      },
      net);
}

TEST(SyncBatchNorm, OfSequencesInAnyOrderOfMemory) {
  expect_as_alone<torch::nn::BatchNorm1d, SyncBatchNorm1d>(torch::randn({8, 5, 3}).transpose(1, 2));
}

// Means far from zero: the variance keeps its digits.
TEST(SyncBatchNorm, OfValuesFarFromZero) {
  MirroredStrategy strategy(cpus(2));
  const auto net = strategy.create<SyncBatchNorm2d>(2);
  const Tensor all = torch::randn({6, 2, 40, 70}) * 0.01 + 100;
  const Tensor exact =
      torch::batch_norm(all.to(torch::kDouble), {}, {}, {}, {}, true, 0, 1e-5, false);
  strategy.run(
      [&](ReplicaContext& replica, SyncBatchNorm2d& own) {
        const int begin = 3 * replica.replica_id_in_sync_group();
        const Tensor output = own->forward(all.narrow(0, begin, 3)).detach();
        EXPECT_LT(
            (output.to(torch::kDouble) - exact.narrow(0, begin, 3)).abs().max().item<double>(),
            1e-4);
      },
      net);
}

// Output, gradients and running statistics of four replicas: threads, processes, both.
TEST(SyncBatchNorm, HasTheSameBitsInEveryLayout) {
  const Tensor all = torch::randn({8, 3, 7, 9}) * 3 + 5;
  std::vector<std::vector<Tensor>> found(4);
  const auto train = [&](Strategy& strategy) {
    const auto net = strategy.create<SyncBatchNorm2d>(3);
    strategy.run(
        [&](ReplicaContext& replica, SyncBatchNorm2d& own) {
          const int id = replica.replica_id_in_sync_group();
          const Tensor mine = all.narrow(0, kBegin[id], kCount[id]).clone().requires_grad_();
          const Tensor output = own->forward(mine);
          output.pow(3).sum().backward();
          found[static_cast<std::size_t>(id)] = {output.detach(),    mine.grad(),
                                                 own->weight.grad(), own->bias.grad(),
                                                 own->running_mean,  own->running_var};
        },
        net);
  };
  MirroredStrategy mirrored(cpus(4));
  train(mirrored);
  const std::vector<std::vector<Tensor>> expected = found;
  for (const int workers : {2, 4}) {
    found.assign(4, {});
    run_workers({.workers = workers, .replicas = 4 / workers}, train);
    for (std::size_t id = 0; id < 4; ++id) {
      for (std::size_t i = 0; i < expected[id].size(); ++i) {
        EXPECT_TRUE(found[id].at(i).equal(expected[id][i])) << id << " " << i;
      }
    }
  }
}

/// Threads of a replica divide what is computed for each element by itself.
TEST(SyncBatchNorm, HasTheSameBitsWithSeveralThreads) {
  const auto results = [](const Tensor& all, int threads) {
    MirroredOptions options = cpus(2);
    options.replicas.threads_per_replica = threads;
    MirroredStrategy strategy(options);
    const auto net = strategy.create<SyncBatchNorm2d>(3);
    std::vector<Tensor> found(5);
    strategy.run(
        [&](ReplicaContext& replica, SyncBatchNorm2d& own) {
          const int id = replica.replica_id_in_sync_group();
          const Tensor mine = all.narrow(0, 5 * id, 5).clone(all.suggest_memory_format());
          mine.requires_grad_();
          const Tensor output = own->forward(mine);
          output.backward(mine.detach() * 0.7 - 1);
          if (id == 1) {
            found = {output.detach(), mine.grad(), own->weight.grad(), own->bias.grad(),
                     own->running_var};
          }
        },
        net);
    return found;
  };
  const Tensor images = torch::randn({10, 3, 61, 83}) * 3 + 5;  // 75,945 elements a replica
  for (const Tensor& all : {images, images.contiguous(torch::MemoryFormat::ChannelsLast)}) {
    const std::vector<Tensor> one = results(all, 1);
    for (const int threads : {2, 3}) {
      const std::vector<Tensor> several = results(all, threads);
      for (std::size_t i = 0; i < one.size(); ++i) {
        EXPECT_TRUE(several[i].equal(one[i])) << threads << " threads, result " << i;
      }
    }
  }
}

// --- Second derivatives. ------------------------------------------------------------------------

struct Penalty {
  Tensor value;  // the squared norm of the gradient of a loss by the input, as in WGAN-GP
  Tensor of_input, of_weight, of_bias;  // its gradients
  static auto lockstep_members() {
    return std::tuple(&Penalty::value, &Penalty::of_input, &Penalty::of_weight, &Penalty::of_bias);
  }
};

template <class Norm>
Penalty penalty_of(const Tensor& rows, const Tensor& scale, Norm& norm) {
  {
    const torch::NoGradGuard not_recorded;
    norm->to(torch::kDouble);
    norm->weight.copy_(torch::tensor({0.5, 1.5, -2.0}, torch::kDouble));
  }
  const Tensor x = rows.clone().requires_grad_();
  const Tensor loss = (torch::sigmoid(norm->forward(x)) * scale).sum();
  const Tensor first = torch::autograd::grad({loss}, {x}, {}, true, /*create_graph=*/true)[0];
  const Tensor value = first.pow(2).sum();
  const auto second = torch::autograd::grad({value}, {x, norm->weight, norm->bias});
  return {value.detach(), second[0], second[1], second[2]};
}

TEST(SyncBatchNorm, SecondDerivativesAreThoseOfTheWholeBatch) {
  torch::manual_seed(3);
  const Tensor all = torch::randn({8, 3, 4, 5}, torch::kDouble);
  const Tensor scale = torch::randn({8, 3, 4, 5}, torch::kDouble);
  torch::nn::BatchNorm2d plain(3);
  const Penalty expected = penalty_of(all, scale, plain);
  ASSERT_GT(expected.of_input.abs().max().item<double>(), 0.01);
  const auto near = [](const Tensor& found, const Tensor& wanted) {
    return torch::allclose(found, wanted, 1e-8, 1e-10);
  };

  const auto check = [&](Strategy& strategy) {
    const int replicas = strategy.num_replicas_in_sync();
    const auto net = strategy.create<SyncBatchNorm2d>(3);
    // Of rows like `all`; the value and the gradients of weight and bias summed over all replicas.
    const auto found_for = [&](const Tensor& rows) {
      return strategy.run(
          [&](ReplicaContext& replica, SyncBatchNorm2d& own) {
            const int id = replica.replica_id_in_sync_group();
            const int begin = replicas == 4 ? kBegin[id] : 8 / replicas * id;
            const int count = replicas == 4 ? kCount[id] : 8 / replicas;
            Penalty found =
                penalty_of(rows.narrow(0, begin, count), scale.narrow(0, begin, count), own);
            found.of_input = replica.all_gather(found.of_input);
            for (Tensor* each : {&found.value, &found.of_weight, &found.of_bias}) {
              *each = replica.all_reduce(ReduceOp::sum, *each);
            }
            return found;
          },
          net)[0];
    };
    const Penalty found = found_for(all);
    EXPECT_TRUE(near(found.value, expected.value));
    EXPECT_TRUE(near(found.of_input, expected.of_input));
    EXPECT_TRUE(near(found.of_weight, expected.of_weight));
    EXPECT_TRUE(near(found.of_bias, expected.of_bias));
    // By differences, too.
    const Tensor step = torch::cos(torch::arange(all.numel(), torch::kDouble)).view(all.sizes());
    constexpr double kLength = 1e-5;
    const Tensor difference =
        (found_for(all + kLength * step).value - found_for(all - kLength * step).value) /
        (2 * kLength);
    EXPECT_NEAR(number((found.of_input * step).sum()), number(difference), 1e-6);
  };
  for (const int count : {1, 2, 4}) {
    MirroredStrategy mirrored(cpus(count));
    check(mirrored);
  }
  run_workers({.workers = 2}, check);
  run_workers({.workers = 2, .replicas = 2}, check);
}

// Of an input that needs no gradient: nothing is exchanged, weight and bias have theirs.
/// In float nothing is left of a one beside a hundred million.
TEST(SyncBatchNorm, SumsOfARecordedBackwardAreOfDoubles) {
  constexpr std::int64_t kRows = 4096;
  MirroredStrategy strategy(cpus(2));
  const auto net = strategy.create<SyncBatchNorm1d>(1);
  strategy.run(
      [&](SyncBatchNorm1d& own) {
        const Tensor rows = torch::linspace(-1, 1, kRows).view({kRows, 1});
        Tensor gradient = torch::ones({kRows, 1});
        gradient[0] = 1e8;
        gradient[kRows - 1] = -1e8;
        for (const bool input_wanted : {false, true}) {
          const Tensor output = own->forward(rows.clone().requires_grad_(input_wanted));
          const auto of_bias = torch::autograd::grad({output}, {own->bias}, {gradient},
                                                     /*retain_graph=*/true, /*create_graph=*/true);
          EXPECT_EQ(of_bias[0].item<double>(), kRows - 2) << input_wanted;
        }
      },
      net);
}

TEST(SyncBatchNorm, SecondDerivativesOfTheWeightAlone) {
  const Tensor all = torch::randn({4, 2}, torch::kDouble);
  const auto found_by = [](const Tensor& x, auto& norm) {
    norm->to(torch::kDouble);
    const Tensor loss = norm->forward(x).pow(3).sum();
    const auto first =
        torch::autograd::grad({loss}, {norm->weight, norm->bias}, {}, true, /*create_graph=*/true);
    const auto second = torch::autograd::grad({first[0].sum() + first[1].sum()}, {norm->weight});
    return std::vector{first[0].detach(), first[1].detach(), second[0]};
  };
  torch::nn::BatchNorm1d plain(2);
  const std::vector<Tensor> expected = found_by(all, plain);
  MirroredStrategy strategy(cpus(2));
  const auto net = strategy.create<SyncBatchNorm1d>(2);
  strategy.run(
      [&](ReplicaContext& replica, SyncBatchNorm1d& own) {
        const std::vector<Tensor> found =
            replica.all_reduce(ReduceOp::sum, found_by(all.narrow(0, 2 * replica_id(), 2), own));
        for (std::size_t i = 0; i < found.size(); ++i) {
          EXPECT_TRUE(torch::allclose(found[i], expected[i], 1e-9, 1e-11)) << i;
        }
      },
      net);
}

TEST(SyncBatchNorm, BackwardOutsideOfTheStepIsRefused) {
  MirroredStrategy strategy(cpus(2));
  const auto net = strategy.create<SyncBatchNorm1d>(3);
  const auto outputs = strategy.run(
      [](SyncBatchNorm1d& own) {
        return own->forward(torch::randn({4, 3}).requires_grad_());
      },
      net);
  EXPECT_THAT(wrong_context([&] { outputs[0].sum().backward(); }),
              ::testing::HasSubstr("backward through SyncBatchNorm"));
}

// One meeting forward, one backward, whatever is recorded.
// Modules are called by other modules: there is no line of the program to name, and none of ours
// is named in its place.
TEST(SyncBatchNorm, ADisagreementNamesItAndNoLineOfLockstep) {
  for (const bool backward : {false, true}) {
    std::string message;
    try {
      run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
        const auto net = strategy.create<SyncBatchNorm1d>(3);
        strategy.run(
            [&](ReplicaContext& replica, SyncBatchNorm1d& own) {
              const Tensor x = torch::ones({2, 3}).requires_grad_();
              const auto meet = [&] { replica.merge_call([](Strategy& s) { s.barrier(); }); };
              if (!strategy.is_chief() && !backward) return meet();
              const Tensor out = own->forward(x);
              if (!strategy.is_chief()) return meet();
              out.sum().backward();
            },
            net);
      });
    } catch (const Mismatch& error) {
      message = error.what();
    }
    EXPECT_THAT(message,
                ::testing::HasSubstr(backward ? "rank 0: SyncBatchNorm SUM float64[3, 2]"
                                              : "rank 0: SyncBatchNorm moments float64[1, 3, 3]"));
    EXPECT_THAT(message, ::testing::Not(::testing::HasSubstr("sync_batch_norm.cc")));
  }
  MirroredStrategy threads(cpus(2));
  const auto net = threads.create<SyncBatchNorm1d>(3);
  const std::string table = wrong_context([&] {
    threads.run(
        [](ReplicaContext& replica, SyncBatchNorm1d& own) {
          if (replica.replica_id_in_sync_group() == 0) own->forward(torch::ones({2, 3}));
        },
        net);
  });
  EXPECT_THAT(table, ::testing::Not(::testing::HasSubstr("sync_batch_norm.cc")));
}

TEST(SyncBatchNorm, MeetsOncePerPass) {
  MirroredStrategy strategy(cpus(2));
  const auto net = strategy.create<SyncBatchNorm1d>(3);
  // The table says how many meetings there have been.
  const auto meetings = [&](bool create_graph) {
    return wrong_context([&] {
      strategy.run(
          [&](ReplicaContext& replica, SyncBatchNorm1d& own) {
            const Tensor x = torch::randn({4, 3}).requires_grad_();
            torch::autograd::grad({own->forward(x).pow(2).sum()}, {x}, {}, {}, create_graph);
            if (replica_id() == 0) replica.merge_call([](Strategy&) {});
          },
          net);
    });
  };
  EXPECT_THAT(meetings(false), ::testing::HasSubstr("waits in merge call 3"));
  EXPECT_THAT(meetings(true), ::testing::HasSubstr("waits in merge call 3"));
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
