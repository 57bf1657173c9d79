// Optimizers: gradients of all replicas, one step.
#include "lockstep/optimizer.h"

#include "tests/train/optimizer_fixtures.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::run_workers;

// Case 133: y = (w - 1)^2 comes nearer to its minimum with every step.
void descend(Strategy& strategy, double learning_rate) {
  const auto scope = strategy.scope();
  const Variable w = trainable("w", torch::zeros({1}));
  const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(learning_rate));
  double distance = 1;
  for (int i = 0; i < 10; ++i) {
    strategy.run(
        [&](ReplicaContext& replica, Optimizer& optimizer) {
          (w.read() * 1 - 1).pow(2).sum().div(replica.num_replicas_in_sync()).backward();
          optimizer.apply(replica);
        },
        sgd);
    const double now = std::abs(w.read().item<double>() - 1);
    EXPECT_LT(now, distance);
    distance = now;
  }
  EXPECT_EQ(sgd.iterations(), 10);
}

TEST(Optimizer, Case133MinimisesUnderEveryStrategy) {
  MirroredStrategy mirrored(cpus(2));
  descend(mirrored, 0.2);
  OneDeviceStrategy one("CPU:0");
  descend(one, 0.2);
  descend(get_strategy(), 0.2);
  run_workers({.workers = 3},
              [](MultiWorkerMirroredStrategy& strategy) { descend(strategy, 0.05); });
  run_workers({.workers = 2, .replicas = 2},
              [](MultiWorkerMirroredStrategy& strategy) { descend(strategy, 0.05); });
}

/// The parameters after some steps of a strategy whose replicas together see rows 0..n-1.
std::vector<Tensor> trained(Strategy& strategy, const GradientOptions& options = {}) {
  const auto scope = strategy.scope();
  const auto net = strategy.create<TwoLayers>();
  const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(0.1).momentum(0.9), options);
  for (int i = 0; i < 5; ++i) {
    strategy.run(
        [&](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
          own->forward(rows_of(replica.replica_id_in_sync_group())).pow(2).sum().backward();
          optimizer.apply(replica);
        },
        net, sgd);
  }
  std::vector<Tensor> result;
  for (const Variable& v : net.variables()) result.push_back(v[0].detach().clone());
  sgd.check_parameters();
  return result;
}

std::vector<Tensor> expected(int replicas) {
  TwoLayers net;
  torch::optim::SGD sgd(net->parameters(), rate(0.1).momentum(0.9));
  for (int i = 0; i < 5; ++i) {
    sgd.zero_grad();
    for (int r = 0; r < replicas; ++r) net->forward(rows_of(r)).pow(2).sum().backward();
    sgd.step();
  }
  return net->parameters();
}

TEST(Optimizer, TakesTheStepOfAllReplicasRows) {
  MirroredStrategy strategy(cpus(2));
  const auto own = trained(strategy);
  const auto alone = expected(2);
  for (std::size_t i = 0; i < own.size(); ++i) EXPECT_TRUE(torch::allclose(own[i], alone[i]));
}

TEST(Optimizer, GivesTheSameBitsInEveryLayout) {
  MirroredStrategy threads(cpus(4));
  const auto reference = trained(threads);
  MirroredStrategy sequential(cpus(4, Execution::sequential));
  const auto one_by_one = trained(sequential);
  for (std::size_t i = 0; i < reference.size(); ++i) EXPECT_TRUE(reference[i].equal(one_by_one[i]));
  const GradientOptions ways[] = {{},
                                  {.overlap = Overlap::always},
                                  {.overlap = Overlap::always, .bucket_bytes = 64},
                                  {.bucket_bytes = 64},
                                  {.bucket_bytes = 1},
                                  {.allow_unused = true, .overlap = Overlap::always}};
  for (const GradientOptions& options : ways) {
    for (const auto& [workers, replicas] : {std::pair(4, 1), {2, 2}}) {
      run_workers({.workers = workers, .replicas = replicas},
                  [&](MultiWorkerMirroredStrategy& strategy) {
                    const auto own = trained(strategy, options);
                    for (std::size_t i = 0; i < own.size(); ++i) {
                      EXPECT_TRUE(reference[i].equal(own[i])) << i;
                    }
                  });
    }
  }
}

TEST(Optimizer, LearnsTheOrderOfArrival) {
  run_workers({.workers = 2}, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const auto net = strategy.create<TwoLayers>();
    const auto sgd = strategy.optimizer<torch::optim::SGD>(
        net, rate(0.1), {.overlap = Overlap::always, .bucket_bytes = 64});
    EXPECT_THAT(sgd.explain(), HasSubstr("first step"));
    strategy.run(
        [&](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
          own->forward(rows_of(0)).sum().backward();
          optimizer.apply(replica);
        },
        net, sgd);
    // The last layer's gradients come first.
    EXPECT_THAT(sgd.explain(), HasSubstr("bucket 0: 1 gradient, 64 bytes, first b."));
  });
}

/// What libtorch computed is not copied to where the other workers see it: it lies there.
TEST(Optimizer, AGradientThatTravelsAloneStaysWhereItWasComputed) {
  for (const int replicas : {1, 2}) {
    run_workers({.workers = 2, .replicas = replicas}, [&](MultiWorkerMirroredStrategy& strategy) {
      const auto scope = strategy.scope();
      const auto net = strategy.create<TwoLayers>();
      const auto adam = strategy.optimizer<torch::optim::Adam>(net, torch::optim::AdamOptions(0.1),
                                                               {.bucket_bytes = 1});
      for (int i = 0; i < 4; ++i) {
        strategy.run(
            [&](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
              const void* computed = nullptr;
              const unsigned hook = own->a->weight.register_hook(
                  [&](const Tensor& gradient) { computed = gradient.data_ptr(); });
              own->forward(rows_of(0)).sum().backward();
              own->a->weight.remove_hook(hook);
              EXPECT_EQ(own->a->weight.grad().data_ptr(), computed) << "step " << i;
              optimizer.apply(replica);
            },
            net, adam);
      }
      EXPECT_THAT(adam.explain(), HasSubstr("48 bytes, first a.weight, in place"));
    });
  }
}

/// libtorch gives `a` and `b` two views of one gradient. Their sums must not be added up twice.
void step_with_views_of_one_gradient(Strategy& strategy, const GradientOptions& options) {
  const auto scope = strategy.scope();
  const Variable a = trainable("a", torch::zeros({2, 3}));
  const Variable b = trainable("b", torch::zeros({3, 2}));
  const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{a, b}, rate(1), options);
  const Tensor x = torch::linspace(1, 6, 6);
  for (int i = 0; i < 3; ++i) {
    strategy.run(
        [&](ReplicaContext& replica, Optimizer& optimizer) {
          const Tensor own_a = a.read();
          ((own_a.view({6}) + b.read().view({6})) * x).sum().backward();
          optimizer.apply(replica);
        },
        sgd);
  }
  const Tensor expected_steps = -3 * strategy.num_replicas_in_sync() * x;
  EXPECT_TRUE(a.read().detach().view({6}).equal(expected_steps)) << a.read();
  EXPECT_TRUE(b.read().detach().view({6}).equal(expected_steps)) << b.read();
}

TEST(Optimizer, ViewsOfOneGradientAreAddedUpOnce) {
  MirroredStrategy threads(cpus(2));
  step_with_views_of_one_gradient(threads, {});
  for (const std::int64_t bytes : {0, 1}) {
    for (const int replicas : {1, 2}) {
      run_workers({.workers = 2, .replicas = replicas}, [&](MultiWorkerMirroredStrategy& strategy) {
        step_with_views_of_one_gradient(strategy, {.bucket_bytes = bytes});
      });
    }
  }
}

void keep_a_gradient(Strategy& strategy, const GradientOptions& options) {
  const auto scope = strategy.scope();
  const Variable w = trainable("w", torch::zeros({6}));
  const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(1), options);
  const Tensor x = torch::linspace(1, 6, 6);
  for (int i = 0; i < 3; ++i) {
    strategy.run(
        [&](ReplicaContext& replica, Optimizer& optimizer) {
          const Tensor own = w.read();
          (own * x).sum().backward();
          const Tensor kept = own.grad();
          optimizer.apply(replica);
          EXPECT_TRUE(kept.equal(x)) << "step " << i << kept;
        },
        sgd);
  }
}

TEST(Optimizer, AGradientThatSomebodyKeepsStaysAsItIs) {
  MirroredStrategy threads(cpus(2));
  keep_a_gradient(threads, {});
  run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    keep_a_gradient(strategy, {.bucket_bytes = 1});
  });
}

/// The parameters after two steps of a user who puts gradients of his own into `.grad`.
std::vector<Tensor> stepped_with_others(Strategy& strategy, const GradientOptions& options) {
  const auto scope = strategy.scope();
  const auto net = strategy.create<TwoLayers>();
  const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(0.1), options);
  for (int i = 0; i < 2; ++i) {
    strategy.run(
        [&](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
          own->forward(rows_of(replica.replica_id_in_sync_group())).pow(2).sum().backward();
          for (Tensor& p : own->parameters()) p.mutable_grad() = p.grad() * 0.5;
          optimizer.apply(replica);
        },
        net, sgd);
  }
  std::vector<Tensor> result;
  for (const Variable& v : net.variables()) result.push_back(v[0].detach().clone());
  return result;
}

TEST(Optimizer, WhatIsPutIntoGradCountsInsteadOfTheGradient) {
  MirroredStrategy threads(cpus(2));
  const auto reference = stepped_with_others(threads, {});
  for (const std::int64_t bytes : {0, 1}) {
    run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
      const auto own = stepped_with_others(strategy, {.bucket_bytes = bytes});
      for (std::size_t i = 0; i < own.size(); ++i) EXPECT_TRUE(reference[i].equal(own[i])) << i;
    });
  }
  // Sent while backward went on: too late.
  run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    try {
      (void)stepped_with_others(strategy, {.overlap = Overlap::always});
      ADD_FAILURE() << "was ignored";
    } catch (const InvalidUsage& error) {
      EXPECT_THAT(error.what(), HasSubstr("another tensor was put into .grad of b."));
    } catch (const PeerLost&) {  // the other one was first to see it
    }
  });
}

TEST(Optimizer, SixteenBitsOnTheWireAreClose) {
  MirroredStrategy threads(cpus(2));
  const auto exact = trained(threads);
  run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    const auto own = trained(strategy, {.wire = coll::WireType::bf16});
    bool equal = true;
    for (std::size_t i = 0; i < own.size(); ++i) {
      EXPECT_TRUE(torch::allclose(exact[i], own[i], 0.05, 0.02)) << exact[i] << own[i];
      equal = equal && exact[i].equal(own[i]);
    }
    EXPECT_FALSE(equal);
  });
}

/// The message of what a step with this body throws, on two replicas.
template <class Body>
std::string refused(const GradientOptions& options, Body&& body) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto net = strategy.create<TwoLayers>();
  const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(0.1), options);
  try {
    strategy.run(body, net, sgd);
  } catch (const InvalidUsage& error) {
    return error.what();
  }
  return "";
}

TEST(Optimizer, ASecondBackwardBeforeApplyNamesTheParameter) {
  const std::string message =
      refused({}, [](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
        own->forward(rows_of(0)).sum().backward();
        own->forward(rows_of(0)).sum().backward();
        optimizer.apply(replica);
      });
  EXPECT_THAT(message, HasSubstr("second backward"));
  EXPECT_THAT(message, HasSubstr("b."));
}

TEST(Optimizer, AnUnusedParameterIsNamed) {
  const auto step = [](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
    own->a(rows_of(0)).sum().backward();
    optimizer.apply(replica);
  };
  EXPECT_THAT(refused({}, step), HasSubstr("parameter b.weight has no gradient"));
  EXPECT_EQ(refused({.allow_unused = true}, step), "");
}

TEST(Optimizer, NoGradientAtAllIsRefused) {
  EXPECT_THAT(refused({}, [](ReplicaContext& replica, TwoLayers&,
                             Optimizer& optimizer) { optimizer.apply(replica); }),
              HasSubstr("No gradients provided"));
}

TEST(Optimizer, APartlyUsedParameterCountsAsZeroElsewhere) {
  const auto train = [](Strategy& strategy) {
    const auto scope = strategy.scope();
    const auto net = strategy.create<TwoLayers>();
    const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(1), {.allow_unused = true});
    const Tensor before = net.variables()[3][0].detach().clone();
    const Tensor untouched = net.variables()[0][0].detach().clone();
    for (int i = 0; i < 2; ++i) {
      strategy.run(
          [&](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
            if (replica.replica_id_in_sync_group() == 1) own->b->bias.sum().backward();
            optimizer.apply(replica);
          },
          net, sgd);
    }
    EXPECT_TRUE(torch::allclose(net.variables()[3][0], before - 2));
    EXPECT_TRUE(net.variables()[0][0].equal(untouched));
  };
  MirroredStrategy mirrored(cpus(2));
  train(mirrored);
  run_workers({.workers = 2}, train);
}

TEST(Optimizer, AccumulatedPassesAddUp) {
  const auto train = [](Strategy& strategy, bool accumulate) {
    const auto scope = strategy.scope();
    const auto net = strategy.create<TwoLayers>();
    const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(0.1));
    for (int i = 0; i < 2; ++i) {
      strategy.run(
          [&](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
            const auto loss = [&](int r) { return own->forward(rows_of(r)).sum(); };
            if (accumulate) {
              {
                const auto passes = optimizer.accumulate();
                loss(0).backward();
                loss(1).backward();
              }
              loss(2).backward();
            } else {
              (loss(0) + loss(1) + loss(2)).backward();
            }
            optimizer.apply(replica);
          },
          net, sgd);
    }
    return net.variables()[0][0].detach().clone();
  };
  MirroredStrategy strategy(cpus(2));
  const Tensor at_once = train(strategy, false);
  EXPECT_TRUE(torch::allclose(train(strategy, true), at_once));
  run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& workers) {
    EXPECT_TRUE(torch::allclose(train(workers, true), at_once));
  });
}

TEST(Optimizer, FrozenParametersStay) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto net = strategy.create<TwoLayers>();
  for (int r = 0; r < 2; ++r) net[r]->a->weight.requires_grad_(false);
  const Tensor before = net[0]->a->weight.clone();
  const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(0.1));
  strategy.run(
      [](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
        own->forward(rows_of(0)).sum().backward();
        optimizer.apply(replica);
      },
      net, sgd);
  EXPECT_TRUE(net[0]->a->weight.equal(before));
}

TEST(Optimizer, FreezingOrUnfreezingLaterIsRefused) {
  EXPECT_THAT(refused({},
                      [](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
                        own->a->weight.requires_grad_(false);
                        own->forward(rows_of(0)).sum().backward();
                        optimizer.apply(replica);
                      }),
              HasSubstr("a.weight was trainable"));
}

TEST(Optimizer, ClipsByTheNormOfTheSum) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const Variable w = trainable("w", torch::zeros({2}));
  const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(1));
  strategy.run(
      [&](ReplicaContext& replica, Optimizer& optimizer) {
        (w.read() * torch::tensor({3.0, 4.0})).sum().backward();
        optimizer.apply(replica, {.clip_global_norm = 1.0});
      },
      sgd);
  EXPECT_TRUE(torch::allclose(w.read(), torch::tensor({-0.6, -0.8})));
}

TEST(Optimizer, TiedParametersAreSteppedOnce) {
  struct Tied : torch::nn::Module {
    Tied() {
      one = register_parameter("one", torch::ones({1}));
      two = register_parameter("two", one);
    }
    Tensor one, two;
  };
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto net = strategy.create<Tied>();
  ASSERT_EQ(net.variables().size(), 1U);
  const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(1));
  strategy.run(
      [](ReplicaContext& replica, Tied& own, Optimizer& optimizer) {
        (own.one + own.two).sum().backward();
        optimizer.apply(replica);
      },
      net, sgd);
  EXPECT_EQ(net[0].one.item<double>(), 1 - 4);
}

TEST(Optimizer, SparseGradientsStaySparse) {
  const auto train = [](Strategy& strategy) {
    const auto scope = strategy.scope();
    const auto net =
        strategy.create<torch::nn::Embedding>(torch::nn::EmbeddingOptions(6, 2).sparse(true));
    net.variables()[0].assign(torch::zeros({6, 2}));
    const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(1));
    for (int i = 0; i < 2; ++i) {
      strategy.run(
          [](ReplicaContext& replica, torch::nn::Embedding& own, Optimizer& optimizer) {
            const auto rows = torch::tensor({0, replica.replica_id_in_sync_group() + 1});
            own->forward(rows).sum().backward();
            EXPECT_TRUE(own->weight.grad().is_sparse());
            optimizer.apply(replica);
          },
          net, sgd);
    }
    EXPECT_EQ(numbers(net[0]->weight.select(1, 0)), (std::vector<double>{-4, -2, -2, 0, 0, 0}));
  };
  MirroredStrategy mirrored(cpus(2));
  train(mirrored);
  run_workers({.workers = 2}, train);
}

TEST(Optimizer, GradientsByHandInBothContexts) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const Variable w = trainable("w", torch::zeros({1}));
  const auto sgd = strategy.optimizer<torch::optim::SGD>(std::vector{w}, rate(1));
  strategy.run(
      [&](ReplicaContext&, Optimizer& optimizer) {
        optimizer.apply_gradients({{torch::ones({1}), w}});
      },
      sgd);
  EXPECT_EQ(w.read().item<double>(), -2);
  const auto gradients = strategy.run([] { return torch::ones({1}); });
  sgd.distributed_apply(strategy, {{gradients, w}});
  EXPECT_EQ(w.read().item<double>(), -4);

  EXPECT_THAT(wrong_context([&] {
                sgd.apply_gradients({{torch::ones({1}), w}});
              }),
              HasSubstr("distributed_apply"));
  EXPECT_THAT(wrong_context([&] { strategy.run([&] { sgd.distributed_apply(strategy, {}); }); }),
              HasSubstr("apply_gradients"));
  EXPECT_THAT(wrong_value([&] {
                strategy.run(
                    [&](ReplicaContext&, Optimizer& optimizer) {
                      optimizer.apply_gradients({{Tensor(), w}});
                    },
                    sgd);
              }),
              HasSubstr("variable w has no gradient"));
}

TEST(Optimizer, ADivergedReplicaIsNamed) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto net = strategy.create<TwoLayers>();
  const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(0.1), {.check_every = 1});
  {
    const torch::NoGradGuard not_recorded;
    net[1]->b->weight.add_(1);
  }
  const std::string message = error_of<Mismatch>(Code::data_loss, [&] {
    strategy.run(
        [](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
          own->forward(rows_of(0)).sum().backward();
          optimizer.apply(replica);
        },
        net, sgd);
  });
  EXPECT_THAT(message, HasSubstr("parameter b.weight of replica 1"));
}

TEST(Optimizer, WorkersWithOtherParametersAreFoundAtTheStart) {
  try {
    run_workers({.workers = 2}, [](MultiWorkerMirroredStrategy& strategy) {
      const auto scope = strategy.scope();
      const Variable a = trainable("a", torch::zeros({1}));
      const Variable b = trainable("b", torch::zeros({1}));
      const bool first = strategy.worker_index() == 0;
      strategy.optimizer<torch::optim::SGD>(std::vector{first ? a : b, first ? b : a}, rate(1));
    });
    FAIL();
  } catch (const Mismatch& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("worker 0 has variable a [1] Float, worker 1 has variable b [1] Float"));
  }
}

}  // namespace
}  // namespace lockstep
