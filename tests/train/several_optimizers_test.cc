// Several optimizers and several backward passes over one model, or over two models that one loss
// goes through.
#include <sstream>

#include "tests/train/optimizer_fixtures.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::run_workers;

/// All layouts of two replicas: threads, workers, and workers that send during backward.
template <class Check>
void in_every_layout(const Check& check) {
  MirroredStrategy threads(cpus(2));
  check(threads, GradientOptions{});
  for (const Overlap overlap : {Overlap::never, Overlap::always}) {
    run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
      check(strategy, GradientOptions{.overlap = overlap, .bucket_bytes = 64});
    });
  }
  run_workers({.workers = 2, .replicas = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    check(strategy, GradientOptions{.overlap = Overlap::always});
  });
}

// --- a generator and a critic --------------------------------------------------------------------

constexpr std::int64_t kRows = 8;
constexpr int kSteps = 4;
constexpr int kCriticSteps = 2;

struct PartImpl : torch::nn::Module {
  PartImpl(std::int64_t in, std::int64_t out, double most) {
    register_module("a", a = torch::nn::Linear(in, 6));
    register_module("b", b = torch::nn::Linear(6, out));
    to(torch::kDouble);
    const torch::NoGradGuard not_recorded;
    for (Tensor& p : parameters()) {
      p.copy_(torch::linspace(-most, most, p.numel(), torch::kDouble).sin().view(p.sizes()));
    }
  }
  Tensor forward(const Tensor& x) { return b(torch::tanh(a(x))); }
  torch::nn::Linear a{nullptr};
  torch::nn::Linear b{nullptr};
};
TORCH_MODULE(Part);

Tensor numbers_like(std::int64_t rows, std::int64_t columns, double factor) {
  return torch::arange(rows * columns, torch::kDouble).mul(factor).sin().view({rows, columns});
}
Tensor noise(int step) { return numbers_like(kRows, 3, 0.7 + step); }
Tensor real(int step) { return numbers_like(kRows, 4, 1.3 + step); }
Tensor mixture() { return numbers_like(kRows, 1, 0.4).abs(); }

/// The critic's loss with a gradient penalty, a sum over the rows.
Tensor critic_loss(Part& critic, const Tensor& fake, const Tensor& truth, const Tensor& mix) {
  const Tensor between = (mix * truth + (1 - mix) * fake).detach().requires_grad_(true);
  const Tensor slope =
      torch::autograd::grad({critic(between).sum()}, {between}, {}, {}, /*create_graph=*/true)[0];
  const Tensor penalty = (slope.norm(2, 1) - 1).square().sum();
  return critic(fake).sum() - critic(truth).sum() + 10 * penalty;
}

/// What is done about the gradients that a pass of the generator's loss leaves on the critic.
enum class Rest { left, discarded, frozen, not_computed };

torch::optim::AdamOptions adam() { return torch::optim::AdamOptions(0.01).betas({0.5, 0.9}); }

/// Plain libtorch with all rows; used: the critic steps with the generator's pass, too.
std::vector<Tensor> gan_alone(bool used) {
  Part generator(3, 4, 0.9);
  Part critic(4, 1, 0.8);
  torch::optim::Adam g(generator->parameters(), adam());
  torch::optim::Adam d(critic->parameters(), adam());
  for (int i = 0; i < kSteps; ++i) {
    for (int k = 0; k < kCriticSteps; ++k) {
      if (!used || k > 0) d.zero_grad();
      (critic_loss(critic, generator(noise(i)).detach(), real(i + k), mixture()) / kRows)
          .backward();
      d.step();
    }
    g.zero_grad();
    d.zero_grad();
    (-critic(generator(noise(i))).sum() / kRows).backward();
    g.step();
  }
  std::vector<Tensor> all = generator->parameters();
  for (const Tensor& p : critic->parameters()) all.push_back(p);
  return all;
}

std::vector<Tensor> gan(Strategy& strategy, const GradientOptions& options, Rest rest, bool used) {
  const auto scope = strategy.scope();
  const auto generator = strategy.create<Part>(3, 4, 0.9);
  const auto critic = strategy.create<Part>(4, 1, 0.8);
  const auto g = strategy.optimizer<torch::optim::Adam>(generator, adam(), options);
  const auto d = strategy.optimizer<torch::optim::Adam>(critic, adam(), options);
  for (int i = 0; i < kSteps; ++i) {
    strategy.run(
        [&](ReplicaContext& replica, Part& own_generator, Part& own_critic, Optimizer& own_g,
            Optimizer& own_d) {
          const std::int64_t rows = kRows / replica.num_replicas_in_sync();
          const auto own = [&](const Tensor& all) {
            return all.narrow(0, rows * replica.replica_id_in_sync_group(), rows);
          };
          for (int k = 0; k < kCriticSteps; ++k) {
            const Tensor fake = own_generator(own(noise(i))).detach();
            (critic_loss(own_critic, fake, own(real(i + k)), own(mixture())) / kRows).backward();
            own_d.apply(replica);
          }
          std::optional<Accumulation> keep;
          if (used) keep.emplace(own_d.accumulate());
          if (rest == Rest::frozen) {
            for (Tensor& p : own_critic->parameters()) p.requires_grad_(false);
          }
          const Tensor loss = -own_critic(own_generator(own(noise(i)))).sum() / kRows;
          if (rest == Rest::not_computed) {
            const std::vector<Tensor> inputs = own_generator->parameters();
            loss.backward({}, c10::nullopt, false, at::TensorList(inputs));
          } else {
            loss.backward();
          }
          own_g.apply(replica);
          if (rest == Rest::frozen) {
            for (Tensor& p : own_critic->parameters()) p.requires_grad_(true);
          }
          if (rest == Rest::discarded) own_d.discard(replica);
        },
        generator, critic, g, d);
  }
  EXPECT_EQ(g.iterations(), kSteps);
  EXPECT_EQ(d.iterations(), kSteps * kCriticSteps);
  g.check_parameters();
  d.check_parameters();
  std::vector<Tensor> all = values_of(generator.variables());
  for (const Tensor& p : values_of(critic.variables())) all.push_back(p);
  return all;
}

void expect_near(const std::vector<Tensor>& own, const std::vector<Tensor>& alone) {
  ASSERT_EQ(own.size(), alone.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    EXPECT_LE((own[i] - alone[i].detach()).abs().max().item<double>(), 1e-12) << i;
  }
}

TEST(SeveralOptimizers, AWassersteinGanWithPenaltyIsThatOfOneReplica) {
  const auto alone = gan_alone(false);
  for (const Rest rest : {Rest::left, Rest::discarded, Rest::frozen, Rest::not_computed}) {
    SCOPED_TRACE(static_cast<int>(rest));
    in_every_layout([&](Strategy& strategy, const GradientOptions& options) {
      expect_near(gan(strategy, options, rest, false), alone);
    });
  }
}

TEST(SeveralOptimizers, WhatAnotherPassLeftBehindMayBeUsed) {
  const auto alone = gan_alone(true);
  in_every_layout([&](Strategy& strategy, const GradientOptions& options) {
    expect_near(gan(strategy, options, Rest::left, true), alone);
  });
}

// --- one model, two optimizers -------------------------------------------------------------------

/// Plain libtorch, four steps; first 2 by momentum, then 2 without, of the sum over replicas.
std::vector<Tensor> one_after_the_other_alone(int replicas) {
  TwoLayers net;
  torch::optim::SGD first(net->parameters(), rate(0.1).momentum(0.9));
  torch::optim::SGD second(net->parameters(), rate(0.05));
  for (int i = 0; i < 6; ++i) {
    first.zero_grad();
    for (int r = 0; r < replicas; ++r) net->forward(rows_of(r)).pow(2).sum().backward();
    (i % 3 == 0 ? first : second).step();
  }
  return net->parameters();
}

TEST(SeveralOptimizers, OverTheSameParametersTakeTurns) {
  in_every_layout([&](Strategy& strategy, const GradientOptions& options) {
    const auto scope = strategy.scope();
    const auto net = strategy.create<TwoLayers>();
    const auto first = strategy.optimizer<torch::optim::SGD>(net, rate(0.1).momentum(0.9), options);
    const auto second = strategy.optimizer<torch::optim::SGD>(net, rate(0.05), options);
    for (int i = 0; i < 6; ++i) {
      strategy.run(
          [&](ReplicaContext& replica, TwoLayers& own, Optimizer& a, Optimizer& b) {
            own->forward(rows_of(replica.replica_id_in_sync_group())).pow(2).sum().backward();
            (i % 3 == 0 ? a : b).apply(replica);
          },
          net, first, second);
    }
    EXPECT_EQ(first.iterations(), 2);
    EXPECT_EQ(second.iterations(), 4);
    second.check_parameters();
    const auto alone = one_after_the_other_alone(strategy.num_replicas_in_sync());
    const auto together = values_of(net.variables());
    for (std::size_t i = 0; i < alone.size(); ++i) {
      EXPECT_TRUE(torch::allclose(together[i], alone[i], 1e-4, 1e-6)) << i;
    }
  });
}

/// As training.md says: freeze, then make another optimizer. The first one goes on living.
TEST(SeveralOptimizers, AnotherIsMadeAfterFreezing) {
  in_every_layout([&](Strategy& strategy, const GradientOptions& options) {
    const auto scope = strategy.scope();
    const auto net = strategy.create<TwoLayers>();
    const auto step = [](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer) {
      own->forward(rows_of(replica.replica_id_in_sync_group())).pow(2).sum().backward();
      optimizer.apply(replica);
    };
    const auto all = strategy.optimizer<torch::optim::SGD>(net, rate(0.1), options);
    for (int i = 0; i < 2; ++i) strategy.run(step, net, all);
    for (int r = 0; r < net.size(); ++r) net[r]->a->weight.requires_grad_(false);
    const auto rest = strategy.optimizer<torch::optim::SGD>(net, rate(0.1), options);
    const Tensor frozen = net[0]->a->weight.detach().clone();
    const Tensor moving = net[0]->b->weight.detach().clone();
    for (int i = 0; i < 3; ++i) strategy.run(step, net, rest);
    EXPECT_EQ(rest.iterations(), 3);
    EXPECT_TRUE(net[0]->a->weight.equal(frozen));
    EXPECT_FALSE(net[0]->b->weight.equal(moving));
    rest.check_parameters();
  });
}

/// One pass for two optimizers, each over a part of the net.
TEST(SeveralOptimizers, OnePassIsUsedByTwoOverDifferentParameters) {
  in_every_layout([&](Strategy& strategy, const GradientOptions& options) {
    const auto scope = strategy.scope();
    const auto split = strategy.create<TwoLayers>();
    const auto& v = split.variables();
    const auto weights =
        strategy.optimizer<torch::optim::SGD>(std::vector{v[0], v[2]}, rate(0.1), options);
    const auto biases =
        strategy.optimizer<torch::optim::SGD>(std::vector{v[1], v[3]}, rate(0.1), options);
    const auto whole = strategy.create<TwoLayers>();
    const auto both = strategy.optimizer<torch::optim::SGD>(whole, rate(0.1), options);
    for (int i = 0; i < 3; ++i) {
      strategy.run(
          [](ReplicaContext& replica, TwoLayers& a, TwoLayers& b, Optimizer& one, Optimizer& other,
             Optimizer& all) {
            const Tensor rows = rows_of(replica.replica_id_in_sync_group());
            a->forward(rows).pow(2).sum().backward();
            one.apply(replica);
            other.apply(replica);
            b->forward(rows).pow(2).sum().backward();
            all.apply(replica);
          },
          split, whole, weights, biases, both);
    }
    expect_equal(values_of(split.variables()), values_of(whole.variables()));
  });
}

struct TwoHeads : torch::nn::Module {
  TwoHeads() {
    register_module("body", body);
    register_module("one", one);
    register_module("two", two);
    const torch::NoGradGuard not_recorded;
    for (Tensor& p : parameters()) p.copy_(torch::linspace(-0.5, 0.5, p.numel()).view(p.sizes()));
  }
  Tensor loss(torch::nn::Linear& head, const Tensor& x) {
    return head(torch::tanh(body(x))).pow(2).sum();
  }
  /// Of the first optimizer's step: its own loss, or both losses in one pass.
  Tensor first_loss(const Tensor& x, bool both) {
    return both ? loss(one, x) + loss(two, x) : loss(one, x);
  }
  torch::nn::Linear body{4, 3};
  torch::nn::Linear one{3, 2};
  torch::nn::Linear two{3, 1};
};

/// Two optimizers have the body, and each has a head.
void expect_body_is_shared(bool both) {
  in_every_layout([&](Strategy& strategy, const GradientOptions& options) {
    TwoHeads alone;
    {
      const auto params = [](const torch::nn::Linear& a, const torch::nn::Linear& b) {
        return std::vector<Tensor>{a->weight, a->bias, b->weight, b->bias};
      };
      torch::optim::SGD first(params(alone.body, alone.one), rate(0.1).momentum(0.5));
      torch::optim::SGD second(params(alone.body, alone.two), rate(0.1));
      for (int i = 0; i < 3; ++i) {
        first.zero_grad();
        for (int r = 0; r < strategy.num_replicas_in_sync(); ++r) {
          alone.first_loss(rows_of(r), both).backward();
        }
        first.step();
        second.zero_grad();
        for (int r = 0; r < strategy.num_replicas_in_sync(); ++r) {
          alone.loss(alone.two, rows_of(r)).backward();
        }
        second.step();
      }
    }
    const auto scope = strategy.scope();
    const auto net = strategy.create<TwoHeads>();
    const auto& v = net.variables();
    const auto first = strategy.optimizer<torch::optim::SGD>(std::vector{v[0], v[1], v[2], v[3]},
                                                             rate(0.1).momentum(0.5), options);
    const auto second = strategy.optimizer<torch::optim::SGD>(std::vector{v[0], v[1], v[4], v[5]},
                                                              rate(0.1), options);
    for (int i = 0; i < 3; ++i) {
      strategy.run(
          [&](ReplicaContext& replica, TwoHeads& own, Optimizer& one, Optimizer& two) {
            const Tensor rows = rows_of(replica.replica_id_in_sync_group());
            own.first_loss(rows, both).backward();
            one.apply(replica);
            own.loss(own.two, rows).backward();
            two.apply(replica);
          },
          net, first, second);
    }
    const auto expected = alone.parameters();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(torch::allclose(v[i][0], expected[i], 1e-4, 1e-6)) << i;
    }
  });
}

/// Each loss is stepped with by its own optimizer.
TEST(SeveralOptimizers, MayShareSomeParameters) { expect_body_is_shared(/*both=*/false); }

/// The pass also reaches the head that only the other optimizer has: the body is summed once.
TEST(SeveralOptimizers, MayShareSomeParametersInOnePassOfBothLosses) {
  expect_body_is_shared(/*both=*/true);
}

/// Gradients that are under way cannot be lost to a new optimizer, whichever parameter it shares.
TEST(SeveralOptimizers, AnotherIsNotMadeWhileGradientsAreSent) {
  run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const auto net = strategy.create<TwoHeads>();
    const auto& v = net.variables();
    const GradientOptions options{.overlap = Overlap::always, .bucket_bytes = 64};
    const auto first = strategy.optimizer<torch::optim::SGD>(std::vector{v[0], v[1], v[2], v[3]},
                                                             rate(0.1), options);
    const auto step = [](ReplicaContext& replica, TwoHeads& own, Optimizer& optimizer) {
      own.loss(own.one, rows_of(replica.replica_id_in_sync_group())).backward();
      optimizer.apply(replica);
    };
    strategy.run(step, net, first);
    strategy.run(
        [](ReplicaContext&, TwoHeads& own, Optimizer&) {
          own.one(torch::ones({2, 3})).pow(2).sum().backward();  // does not reach the body
        },
        net, first);
    const auto make_another = [&] {
      return strategy.optimizer<torch::optim::SGD>(std::vector{v[0], v[1]}, rate(0.1), options);
    };
    EXPECT_THAT(wrong_context(make_another), HasSubstr("is sending the gradients"));
    first.reset();
    const auto second = make_another();
    strategy.run(step, net, first);
    EXPECT_EQ(first.iterations(), 2);
    first.check_parameters();
  });
}

TEST(SeveralOptimizers, AGradientThatAnotherHasUsedIsNotThereTwice) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto net = strategy.create<TwoLayers>();
  const auto first = strategy.optimizer<torch::optim::SGD>(net, rate(0.1));
  const auto second = strategy.optimizer<torch::optim::Adam>(net, torch::optim::AdamOptions(0.1));
  const std::string message = wrong_context([&] {
    strategy.run(
        [](ReplicaContext& replica, TwoLayers& own, Optimizer& a, Optimizer& b) {
          own->forward(rows_of(0)).sum().backward();
          a.apply(replica);
          b.apply(replica);
        },
        net, first, second);
  });
  EXPECT_THAT(message, AllOf(HasSubstr("parameter a.weight has no gradient on replica"),
                             HasSubstr("the apply() of torch::optim::SGD over a.weight and 3 more"),
                             HasSubstr("backward() before the apply() of each")));
}

/// torch::load gives parameters other accumulators, which the optimizer is to watch as well.
TEST(SeveralOptimizers, PassesAreSeenAfterWeightsWereLoaded) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto net = strategy.create<TwoLayers>();
  const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(0.1));
  std::ostringstream saved;
  torch::save(net[0], saved);
  for (int r = 0; r < 2; ++r) {
    std::istringstream text(saved.str());
    torch::load(net[r], text);
  }
  EXPECT_THAT(wrong_context([&] {
                strategy.run(
                    [](ReplicaContext&, TwoLayers& own, Optimizer&) {
                      own->forward(rows_of(0)).sum().backward();
                      own->forward(rows_of(0)).sum().backward();
                    },
                    net, sgd);
              }),
              HasSubstr("a second backward pass"));
}

/// Both losses are computed before either is stepped with: the second pass comes too early.
TEST(SeveralOptimizers, ASecondPassNamesTheOtherOptimizerAndTheRemedies) {
  MirroredStrategy strategy(cpus(2));
  const auto scope = strategy.scope();
  const auto generator = strategy.create<Part>(3, 4, 0.9);
  const auto critic = strategy.create<Part>(4, 1, 0.8);
  const auto g = strategy.optimizer<torch::optim::Adam>(generator, adam());
  const auto d = strategy.optimizer<torch::optim::SGD>(critic, rate(0.1));
  const std::string message = wrong_context([&] {
    strategy.run(
        [](ReplicaContext&, Part& own_generator, Part& own_critic) {
          own_critic(real(0)).sum().backward();
          own_critic(own_generator(noise(0))).sum().backward();
        },
        generator, critic);
  });
  EXPECT_THAT(message,
              AllOf(HasSubstr("a second backward pass before apply(): the gradient of b."),
                    HasSubstr("another optimizer (torch::optim::Adam over a.weight and 3 more)"),
                    HasSubstr("backward(inputs=...)"), HasSubstr("requires_grad_(false)"),
                    HasSubstr("discard()")));
}

}  // namespace
}  // namespace lockstep
