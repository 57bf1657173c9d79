// How gradients become sums: where the sums lie, what may be done to `.grad` before, and steps that
// are given up.
#include "lockstep/sync_batch_norm.h"
#include "tests/train/optimizer_fixtures.h"
#include "train/optimizer_core.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::run_workers;

// --- threads of one process ----------------------------------------------------------------------

TEST(LocalExchange, TheSumLiesWhereTheFirstReplicasGradientWas) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto net = strategy.create<TwoLayers>();
  const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(0.1));
  std::vector<const void*> first;
  int compared = 0;
  sgd.core().observe([&](const train::Parameters& parameters) {
    for (int p = 0; p < parameters.count(); ++p) {
      EXPECT_EQ(parameters.on(0, p).grad().data_ptr(), first[static_cast<std::size_t>(p)]) << p;
      EXPECT_EQ(parameters.on(1, p).grad().data_ptr(), first[static_cast<std::size_t>(p)]) << p;
      ++compared;
    }
  });
  for (int i = 0; i < 2; ++i) {
    strategy.run(
        [&](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
          own->forward(rows_of(0)).sum().backward();
          if (replica.replica_id_in_sync_group() == 0) {
            first.clear();
            for (const Tensor& p : own->parameters()) first.push_back(p.grad().data_ptr());
          }
          optimizer.apply(replica);
        },
        net, sgd);
  }
  EXPECT_EQ(compared, 8);
}

/// A gradient that no sum may be written over, each for a reason of its own.
TEST(LocalExchange, AnExpandedGradientIsAddedUpElsewhere) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const Variable w = trainable("w", torch::zeros({2, 3}));
  const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(1));
  strategy.run(
      [&](ReplicaContext& replica, Optimizer& optimizer) {
        w.read().mutable_grad() = torch::ones({1}).expand({2, 3});
        optimizer.apply(replica);
      },
      sgd);
  EXPECT_TRUE(w.read().equal(torch::full({2, 3}, -2.0)));
}

TEST(LocalExchange, ATableThatOneReplicaDoesNotUseStaysSparse) {
  MirroredStrategy strategy(cpus(3));
  const auto scope = strategy.scope();
  const auto net =
      strategy.create<torch::nn::Embedding>(torch::nn::EmbeddingOptions(6, 2).sparse(true));
  net.variables()[0].assign(torch::zeros({6, 2}));
  const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(1), {.allow_unused = true});
  for (int unused = 0; unused < 3; ++unused) {
    sgd.core().observe([&](const train::Parameters& parameters) {
      EXPECT_TRUE(parameters.on(0, 0).grad().is_sparse()) << "without replica " << unused;
    });
    strategy.run(
        [&](ReplicaContext& replica, torch::nn::Embedding& own, Optimizer& optimizer) {
          const int id = replica.replica_id_in_sync_group();
          if (id != unused) own->forward(torch::tensor({0, id + 1})).sum().backward();
          optimizer.apply(replica);
        },
        net, sgd);
  }
  EXPECT_EQ(numbers(net[0]->weight.select(1, 0)), (std::vector<double>{-6, -2, -2, -2, 0, 0}));
}

// --- what is done to .grad between backward and apply --------------------------------------------

/// Two steps of a user who does this to the gradients after backward.
template <class Change>
std::vector<Tensor> stepped_after(Strategy& strategy, const GradientOptions& options,
                                  const Change& change) {
  const auto scope = strategy.scope();
  const auto net = strategy.create<TwoLayers>();
  const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(0.1), options);
  for (int i = 0; i < 3; ++i) {
    strategy.run(
        [&](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
          own->forward(rows_of(replica.replica_id_in_sync_group())).pow(2).sum().backward();
          change(*own);
          optimizer.apply(replica);
        },
        net, sgd);
  }
  return values_of(net.variables());
}

TEST(GradientExchange, ChangesInPlaceCountUnlessTheyComeTooLate) {
  const auto halve = [](TwoLayersImpl& own) {
    const torch::NoGradGuard not_recorded;
    for (Tensor& p : own.parameters()) p.mutable_grad().mul_(0.5);
  };
  MirroredStrategy threads(cpus(2));
  const auto reference = stepped_after(threads, {}, halve);
  for (const std::int64_t bytes : {0, 1}) {
    run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
      expect_equal(stepped_after(strategy, {.bucket_bytes = bytes}, halve), reference);
    });
  }
  run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    try {
      (void)stepped_after(strategy, {.overlap = Overlap::always}, halve);
      ADD_FAILURE() << "was not seen";
    } catch (const InvalidUsage& error) {
      EXPECT_THAT(error.what(), HasSubstr("something was written to .grad of b."));
      EXPECT_THAT(error.what(), HasSubstr("clip_global_norm"));
    } catch (const PeerLost&) {  // the other one was first to see it
    }
  });
}

/// One gradient that is written to is not all of those that lie beside it.
TEST(GradientExchange, OneChangedGradientIsNamed) {
  run_workers({.workers = 2}, [](MultiWorkerMirroredStrategy& strategy) {
    try {
      (void)stepped_after(strategy, {.overlap = Overlap::always}, [](TwoLayersImpl& own) {
        const torch::NoGradGuard not_recorded;
        own.a->bias.mutable_grad().clamp_(-1e-3, 1e-3);
      });
      ADD_FAILURE() << "was not seen";
    } catch (const InvalidUsage& error) {
      EXPECT_THAT(error.what(), HasSubstr(".grad of a.bias"));
    } catch (const PeerLost&) {
    }
  });
}

/// Also after the gradients were sent and the sums have come.
TEST(GradientExchange, GradStaysTheReplicasOwnUntilApply) {
  for (const Overlap overlap : {Overlap::never, Overlap::always}) {
    run_workers({.workers = 2, .replicas = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
      const auto scope = strategy.scope();
      const auto net = strategy.create<TwoLayers>();
      const auto sgd = strategy.optimizer<torch::optim::SGD>(
          net, rate(0), {.overlap = overlap, .bucket_bytes = 64});
      for (int i = 0; i < 3; ++i) {
        strategy.run(
            [&](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
              const Tensor rows = rows_of(replica.replica_id_in_sync_group());
              const Tensor loss = own->forward(rows).pow(2).sum();
              loss.backward();
              replica.all_reduce(ReduceOp::sum, loss.detach());
              TwoLayers alone;
              alone->forward(rows).pow(2).sum().backward();
              const auto expected = alone->parameters();
              const auto got = own->parameters();
              for (std::size_t p = 0; p < expected.size(); ++p) {
                EXPECT_TRUE(got[p].grad().equal(expected[p].grad())) << "step " << i << ", " << p;
              }
              optimizer.apply(replica);
            },
            net, sgd);
      }
    });
  }
}

TEST(GradientExchange, AGradientOfAnotherShapeIsRefused) {
  const auto check = [](Strategy& strategy) {
    try {
      (void)stepped_after(strategy, {}, [](TwoLayersImpl& own) {
        own.a->weight.mutable_grad() = torch::ones({2, 4});
      });
      ADD_FAILURE() << "was taken";
    } catch (const InvalidUsage& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("the gradient of a.weight is [2, 4], the parameter [3, 4]"));
    } catch (const PeerLost&) {
    }
  };
  MirroredStrategy threads(cpus(2));
  check(threads);
  run_workers({.workers = 2}, check);
}

/// Passes its first argument on; the second has no gradient.
struct First : torch::autograd::Function<First> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& first, const Tensor&) {
    return first.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0], Tensor()};
  }
};

TEST(GradientExchange, APassMayGiveAnUndefinedGradient) {
  const auto check = [](Strategy& strategy, const GradientOptions& options) {
    const auto scope = strategy.scope();
    const Variable a = trainable("a", torch::zeros({2}));
    const Variable b = trainable("b", torch::ones({3}));
    const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{a, b},
                                                           rate(1).weight_decay(0.5), options);
    for (int i = 0; i < 3; ++i) {
      strategy.run(
          [&](ReplicaContext& replica, Optimizer& optimizer) {
            First::apply(a.read(), b.read()).sum().backward();
            optimizer.apply(replica);
          },
          sgd);
    }
    EXPECT_EQ(numbers(a[0]), (std::vector<double>{-3.5, -3.5}));
    EXPECT_TRUE(b[0].equal(torch::ones({3})));  // unused: it does not decay
  };
  MirroredStrategy threads(cpus(2));
  check(threads, {.allow_unused = true});
  for (const Overlap overlap : {Overlap::never, Overlap::always}) {
    run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
      check(strategy, {.allow_unused = true, .overlap = overlap});
    });
  }
}

/// A worker that has used all parameters sends nothing before the others have come to apply():
/// collectives of the step function's own keep one order on all workers.
TEST(GradientExchange, UnusedParametersAndACollectiveBetweenBackwardAndApply) {
  run_workers({.workers = 2}, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const auto net = strategy.create<TwoLayers>();
    const auto sgd = strategy.optimizer<torch::optim::SGD>(
        net, rate(0.1), {.allow_unused = true, .overlap = Overlap::always, .bucket_bytes = 16});
    for (int i = 0; i < 4; ++i) {
      strategy.run(
          [&](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
            const int id = replica.replica_id_in_sync_group();
            // In turns, so that it is not the chief's order that decides.
            const Tensor loss = id == i % 2 ? own->forward(rows_of(id)).pow(2).sum()
                                            : own->a->forward(rows_of(id)).pow(2).sum();
            loss.backward();
            replica.all_reduce(ReduceOp::sum, loss.detach());
            optimizer.apply(replica);
          },
          net, sgd);
    }
    EXPECT_EQ(sgd.iterations(), 4);
    sgd.check_parameters();
  });
}

// --- steps that are given up ---------------------------------------------------------------------

/// Steps, each after passes that are given up: with discard() in the same step function, and with
/// reset() after it. The weights, which must be those without them.
std::vector<Tensor> trained_with_discards(Strategy& strategy, const GradientOptions& options) {
  const auto scope = strategy.scope();
  const auto net = strategy.create<TwoLayers>();
  const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(0.1), options);
  for (int i = 0; i < 3; ++i) {
    strategy.run(
        [&](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
          own->forward(rows_of(5)).sum().backward();
          optimizer.discard(replica);
          EXPECT_FALSE(own->a->weight.grad().defined());
          own->forward(rows_of(6)).sum().backward();
        },
        net, sgd);
    sgd.reset();
    strategy.run(
        [&](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
          own->forward(rows_of(replica.replica_id_in_sync_group())).pow(2).sum().backward();
          optimizer.apply(replica);
        },
        net, sgd);
  }
  EXPECT_EQ(sgd.iterations(), 3);
  sgd.check_parameters();
  return values_of(net.variables());
}

TEST(GradientExchange, WhatIsGivenUpLeavesNothingBehind) {
  MirroredStrategy threads(cpus(2));
  const auto reference = stepped_after(threads, {}, [](TwoLayersImpl&) {});
  MirroredStrategy others(cpus(2));
  expect_equal(trained_with_discards(others, {}), reference);
  const GradientOptions ways[] = {{},
                                  {.bucket_bytes = 1},
                                  {.overlap = Overlap::always},
                                  {.overlap = Overlap::always, .bucket_bytes = 64}};
  for (const GradientOptions& options : ways) {
    run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
      expect_equal(trained_with_discards(strategy, options), reference);
    });
  }
}

/// Worker 0 has sent a bucket when the step is given up, worker 1 has none.
TEST(GradientExchange, WorkersGiveUpTogetherHoweverFarTheyAre) {
  run_workers({.workers = 2}, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const auto net = strategy.create<TwoLayers>();
    const auto sgd = strategy.optimizer<torch::optim::SGD>(
        net, rate(1), {.allow_unused = true, .overlap = Overlap::always, .bucket_bytes = 64});
    const auto run = [&](const std::function<void(ReplicaContext&, TwoLayers&, Optimizer&)>& step) {
      strategy.run([&](ReplicaContext& replica, TwoLayers& own,
                       Optimizer& optimizer) { step(replica, own, optimizer); },
                   net, sgd);
    };
    const auto whole_step = [](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
      own->forward(rows_of(replica.replica_id_in_sync_group())).sum().backward();
      optimizer.apply(replica);
    };
    run(whole_step);
    run([](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
      if (replica.replica_id_in_sync_group() == 0) own->forward(rows_of(0)).sum().backward();
      optimizer.discard(replica);
    });
    run(whole_step);
    sgd.check_parameters();
    EXPECT_EQ(sgd.iterations(), 2);
  });
}

/// Worker 1 gives up a step that worker 0 takes: the buckets of both look alike.
TEST(GradientExchange, AWorkerThatGivesUpAloneIsFound) {
  expect_every_worker_throws<Mismatch>(
      {.workers = 2},
      [](MultiWorkerMirroredStrategy& strategy) {
        const auto scope = strategy.scope();
        const auto net = strategy.create<TwoLayers>();
        const auto sgd =
            strategy.optimizer<torch::optim::SGD>(net, rate(1), {.overlap = Overlap::always});
        for (int i = 0; i < 3; ++i) {
          strategy.run(
              [&](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
                own->forward(rows_of(0)).sum().backward();
                if (i == 1 && !strategy.is_chief()) {
                  optimizer.discard(replica);
                } else {
                  optimizer.apply(replica);
                }
              },
              net, sgd);
        }
      },
      [](const Mismatch& error) {
        EXPECT_THAT(error.what(), HasSubstr(": discard at gradient_exchange_test.cc:"));
      });
}

/// What ended the group has been thrown; reset() says nothing more, and the next call does again.
TEST(GradientExchange, ResetAfterTheGroupHasEndedIsQuiet) {
  run_workers({.workers = 2}, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const auto net = strategy.create<TwoLayers>();
    const auto sgd =
        strategy.optimizer<torch::optim::SGD>(net, rate(1), {.overlap = Overlap::always});
    const auto step = [&](bool fails) {
      strategy.run(
          [&](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
            own->forward(rows_of(0)).sum().backward();
            if (fails) throw std::runtime_error("no more rows");
            optimizer.apply(replica);
          },
          net, sgd);
    };
    EXPECT_ANY_THROW({
      step(false);  // the other one may have come further, and failed
      step(true);
    });
    EXPECT_NO_THROW(sgd.reset());
    EXPECT_FALSE(net[0]->a->weight.grad().defined());
    EXPECT_THROW(sgd.check_parameters(), Error);
  });
}

/// The scope, not what happens inside of it, says how long passes add up.
TEST(GradientExchange, DiscardInsideOfAnAccumulationLeavesItAlive) {
  const auto check = [](Strategy& strategy) {
    const auto scope = strategy.scope();
    const Variable w = trainable("w", torch::zeros({1}));
    const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(1));
    for (int i = 0; i < 3; ++i) {
      strategy.run(
          [&](ReplicaContext& replica, Optimizer& optimizer) {
            {
              const auto more = optimizer.accumulate();
              (w.read() * 100).sum().backward();
              optimizer.discard(replica);
              w.read().sum().backward();
              w.read().sum().backward();
            }
            w.read().sum().backward();
            optimizer.apply(replica);
          },
          sgd);
    }
    // A pass is a pass again: a second one before apply() is found.
    EXPECT_THAT(error_of<InvalidUsage>(Code::failed_precondition,
                                       [&] {
                                         strategy.run(
                                             [&](ReplicaContext&, Optimizer&) {
                                               w.read().sum().backward();
                                               w.read().sum().backward();
                                             },
                                             sgd);
                                       }),
                HasSubstr("second backward"));
    EXPECT_EQ(w[0].item<double>(), -3.0 * 3 * strategy.num_replicas_in_sync());
  };
  MirroredStrategy threads(cpus(2));
  check(threads);
}

// --- several workers -----------------------------------------------------------------------------

TEST(GradientExchange, ClipsByTheNormOfAllWorkersSum) {
  const auto train = [](Strategy& strategy, const GradientOptions& options) {
    const auto scope = strategy.scope();
    const auto net = strategy.create<TwoLayers>();
    const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(0.1), options);
    for (int i = 0; i < 3; ++i) {
      strategy.run(
          [&](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
            own->forward(rows_of(replica.replica_id_in_sync_group())).pow(2).sum().backward();
            optimizer.apply(replica, {.clip_global_norm = 0.01});
          },
          net, sgd);
    }
    sgd.check_parameters();
    return values_of(net.variables());
  };
  MirroredStrategy threads(cpus(4));
  const auto reference = train(threads, {});
  MirroredStrategy unclipped(cpus(4));
  EXPECT_FALSE(reference[0].equal(stepped_after(unclipped, {}, [](TwoLayersImpl&) {})[0]));
  for (const GradientOptions& options :
       {GradientOptions{}, GradientOptions{.bucket_bytes = 1},
        GradientOptions{.overlap = Overlap::always, .bucket_bytes = 64}}) {
    for (const auto& [workers, replicas] : {std::pair(4, 1), {2, 2}}) {
      run_workers({.workers = workers, .replicas = replicas},
                  [&](MultiWorkerMirroredStrategy& strategy) {
                    expect_equal(train(strategy, options), reference);
                  });
    }
  }
}

struct NormedImpl : torch::nn::Module {
  NormedImpl() {
    register_module("a", a);
    register_module("norm", norm);
    register_module("b", b);
    const torch::NoGradGuard not_recorded;
    for (Tensor& p : parameters()) p.copy_(torch::linspace(-0.1, 0.3, p.numel()).view(p.sizes()));
  }
  Tensor forward(const Tensor& x) { return b(torch::tanh(norm(a(x)))); }
  torch::nn::Linear a{4, 3};
  SyncBatchNorm1d norm{3};
  torch::nn::Linear b{3, 2};
};
TORCH_MODULE(Normed);

/// The layer's meetings, in the middle of backward, and the buckets that leave meanwhile keep one
/// order on all workers.
TEST(GradientExchange, SyncBatchNormMeetsWhileBucketsAreSent) {
  const auto train = [](Strategy& strategy, const GradientOptions& options) {
    const auto scope = strategy.scope();
    const auto net = strategy.create<Normed>();
    const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(0.1), options);
    for (int i = 0; i < 4; ++i) {
      strategy.run(
          [](ReplicaContext& replica, Normed& own, Optimizer& optimizer) {
            own->forward(rows_of(replica.replica_id_in_sync_group())).pow(2).sum().backward();
            optimizer.apply(replica);
          },
          net, sgd);
    }
    sgd.check_parameters();
    return values_of(net.variables());
  };
  MirroredStrategy threads(cpus(4));
  const auto reference = train(threads, {});
  for (const auto& [workers, replicas] : {std::pair(4, 1), {2, 2}}) {
    run_workers(
        {.workers = workers, .replicas = replicas}, [&](MultiWorkerMirroredStrategy& strategy) {
          expect_equal(train(strategy, {.overlap = Overlap::always, .bucket_bytes = 1}), reference);
        });
  }
}

}  // namespace
}  // namespace lockstep
