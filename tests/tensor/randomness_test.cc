#include "tensor/randomness.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <barrier>
#include <functional>
#include <thread>

#include "lockstep/error.h"

namespace lockstep::tensor {
namespace {

constexpr std::uint64_t kSeed = 7;

bool same(const Tensor& a, const Tensor& b) { return at::equal(a, b); }

Tensor default_state() { return at::detail::getDefaultCPUGenerator().get_state(); }

// Everything that draws, one after the other: each result depends on all the draws before it.
std::vector<Tensor> draw_everything() {
  const Tensor x = at::ones({50});
  std::vector<Tensor> drawn = {
      at::rand({50}),
      at::randn({3, 7}),
      at::randint(1000, {50}),
      at::randperm(100),
      at::rand_like(x),
      at::randn_like(x),
      at::bernoulli(x * 0.5),
      at::bernoulli(x, 0.3),
      at::dropout(x, 0.5, true),
      at::alpha_dropout(x, 0.5, true),
      at::feature_dropout(at::ones({8, 8, 2}), 0.5, true),
      torch::nn::functional::dropout(x, torch::nn::functional::DropoutFuncOptions().p(0.4)),
      torch::nn::Dropout(0.5)(x),
      at::multinomial(at::ones({40}), 10, /*replacement=*/true),
      at::multinomial(at::ones({40}), 10, /*replacement=*/false),
      at::normal(0.0, x),
      at::empty({50}).normal_(1, 2),
      at::empty({50}).uniform_(-1, 1),
      at::empty({50}, at::kLong).random_(),
      at::empty({50}, at::kInt).random_(3, 9),
      at::empty({50}).exponential_(),
      at::empty({50}).cauchy_(),
      at::empty({50}).geometric_(0.2),
      at::empty({50}).log_normal_(),
      at::poisson(x * 4),
      at::rrelu(-x, 0.1, 0.9, /*training=*/true),
      torch::nn::Linear(5, 6)->weight.detach(),
      torch::nn::init::xavier_normal_(at::empty({6, 5})),
  };
  const Tensor attention = std::get<0>(at::native_dropout(x, 0.5, true));
  drawn.push_back(attention);
  return drawn;
}

// `meet` is called in scope, before each round.
std::vector<Tensor> draw_as(int replica, int rounds, const std::function<void()>& meet) {
  ReplicaGenerator generator(kSeed, replica);
  const ReplicaGenerator::Scope scope(generator);
  std::vector<Tensor> all;
  for (int i = 0; i < rounds; ++i) {
    meet();
    for (Tensor& tensor : draw_everything()) all.push_back(std::move(tensor));
  }
  return all;
}

TEST(Randomness, ThreadsDrawWhatTheyDrawAlone) {
  constexpr int kRounds = 20;
  const Tensor process_wide = default_state();
  const std::vector<Tensor> alone[] = {draw_as(0, kRounds, [] {}), draw_as(1, kRounds, [] {})};
  std::vector<Tensor> together[2];
  {
    // Both are in scope whenever one draws, and they draw round by round.
    std::barrier meeting(2);
    std::vector<std::jthread> threads;
    for (int replica = 0; replica < 2; ++replica) {
      threads.emplace_back([&, replica] {
        together[replica] = draw_as(replica, kRounds, [&] { meeting.arrive_and_wait(); });
      });
    }
  }
  for (int replica = 0; replica < 2; ++replica) {
    ASSERT_EQ(alone[replica].size(), together[replica].size());
    for (std::size_t i = 0; i < alone[replica].size(); ++i) {
      EXPECT_TRUE(same(alone[replica][i], together[replica][i]))
          << "replica " << replica << ", " << i;
    }
  }
  EXPECT_TRUE(same(process_wide, default_state()));
}

TEST(Randomness, ReplicasAndSeedsDiffer) {
  const auto draw = [](std::uint64_t seed, int replica) {
    ReplicaGenerator generator(seed, replica);
    const ReplicaGenerator::Scope scope(generator);
    return at::randint(1 << 30, {8});
  };
  EXPECT_TRUE(same(draw(1, 0), draw(1, 0)));
  EXPECT_FALSE(same(draw(1, 0), draw(1, 1)));
  EXPECT_FALSE(same(draw(1, 0), draw(2, 0)));
  EXPECT_FALSE(same(draw(1, 1), draw(2, 0)));
  // libtorch's engine takes the low half only: seeds that differ in the high half must, too.
  EXPECT_FALSE(same(draw(1, 0), draw(1 + (std::uint64_t{1} << 32), 0)));
}

TEST(Randomness, OnlyInScopeAndOnlyOnItsThread) {
  torch::manual_seed(3);
  const Tensor expected = at::rand({4});
  torch::manual_seed(3);
  ReplicaGenerator generator(kSeed, 0);
  Tensor other;
  {
    const ReplicaGenerator::Scope scope(generator);
    std::jthread([&] { other = at::rand({4}); }).join();
  }
  EXPECT_TRUE(same(expected, other));
  const Tensor before = generator.state();
  at::rand({4});
  EXPECT_TRUE(same(before, generator.state()));
}

TEST(Randomness, ScopesNest) {
  const auto draw = [] { return at::rand({4}); };
  ReplicaGenerator outer(kSeed, 0);
  ReplicaGenerator inner(kSeed, 1);
  const Tensor outer_state = outer.state();
  const ReplicaGenerator::Scope outer_scope(outer);
  const Tensor a = draw();
  {
    const Tensor state = outer.state();
    const ReplicaGenerator::Scope inner_scope(inner);
    draw();
    EXPECT_TRUE(same(state, outer.state()));
  }
  const Tensor b = draw();
  outer.set_state(outer_state);
  EXPECT_TRUE(same(a, draw()));
  EXPECT_TRUE(same(b, draw()));
}

TEST(Randomness, AnExplicitGeneratorWins) {
  at::Generator own = at::detail::createCPUGenerator(5);
  const Tensor expected = at::rand({4}, own);
  own.set_current_seed(5);
  ReplicaGenerator generator(kSeed, 0);
  const Tensor before = generator.state();
  const ReplicaGenerator::Scope scope(generator);
  EXPECT_TRUE(same(expected, at::rand({4}, own)));
  EXPECT_TRUE(same(before, generator.state()));
}

// The default generator given by hand is as none given: its numbers are the process's.
TEST(Randomness, TheDefaultGeneratorGivenByHandIsTheScopes) {
  ReplicaGenerator generator(kSeed, 0);
  ReplicaGenerator same_seed(kSeed, 0);
  const Tensor expected = at::rand({4}, same_seed.generator());
  const Tensor process_wide = default_state();
  {
    const ReplicaGenerator::Scope scope(generator);
    EXPECT_TRUE(same(expected, at::rand({4}, at::detail::getDefaultCPUGenerator())));
  }
  EXPECT_TRUE(same(process_wide, default_state()));
}

TEST(Randomness, TheDefaultGeneratorsSeedAndStateAreTheScopes) {
  torch::manual_seed(3);
  const Tensor process_wide = default_state();
  at::Generator by_default = at::detail::getDefaultCPUGenerator();
  ReplicaGenerator generator(kSeed, 0);
  {
    const ReplicaGenerator::Scope scope(generator);
    torch::manual_seed(21);
    EXPECT_EQ(by_default.current_seed(), 21);
    EXPECT_EQ(generator.generator().current_seed(), 21);
    const Tensor state = by_default.get_state();
    EXPECT_TRUE(same(state, generator.state()));
    at::Generator clone = by_default.clone();
    const Tensor drawn = at::rand({4});
    EXPECT_TRUE(same(drawn, at::rand({4}, at::detail::createCPUGenerator(21))));
    EXPECT_TRUE(same(drawn, at::rand({4}, clone)));
    by_default.set_state(state);
    EXPECT_TRUE(same(drawn, at::rand({4})));
    const std::uint64_t drawn_seed = by_default.seed();
    EXPECT_EQ(drawn_seed, generator.generator().current_seed());
    {
      const ReplicaGenerator::Pause pause;
      EXPECT_TRUE(same(process_wide, default_state()));
    }
    std::jthread([&] { EXPECT_TRUE(same(process_wide, default_state())); }).join();
  }
  EXPECT_TRUE(same(process_wide, default_state()));
  EXPECT_EQ(by_default.current_seed(), 3);
}

// Outside of scopes it is libtorch's own, number for number.
TEST(Randomness, TheDefaultGeneratorIsLibtorchsElsewhere) {
  torch::manual_seed(17);
  at::Generator plain = at::detail::createCPUGenerator(17);
  EXPECT_TRUE(same(at::randn({7}), at::randn({7}, plain)));
  EXPECT_TRUE(same(at::randperm(9), at::randperm(9, plain)));
  at::Generator clone = at::detail::getDefaultCPUGenerator().clone();
  EXPECT_FALSE(clone == at::detail::getDefaultCPUGenerator());
  EXPECT_TRUE(same(clone.get_state(), default_state()));
  EXPECT_TRUE(same(at::rand({3}, clone), at::rand({3})));
  EXPECT_TRUE(same(default_state(), clone.get_state()));
}

TEST(Randomness, ThreadsSeedTheirOwnScopes) {
  std::vector<std::jthread> threads;
  for (int replica = 0; replica < 3; ++replica) {
    threads.emplace_back([replica] {
      ReplicaGenerator generator(kSeed, replica);
      const ReplicaGenerator::Scope scope(generator);
      for (std::uint64_t i = 0; i < 200; ++i) {
        const std::uint64_t seed = 1000 * i + static_cast<std::uint64_t>(replica);
        torch::manual_seed(seed);
        EXPECT_TRUE(same(at::rand({3}), at::rand({3}, at::detail::createCPUGenerator(seed))));
      }
    });
  }
}

TEST(Randomness, WithAndWithoutAutograd) {
  ReplicaGenerator generator(kSeed, 0);
  const ReplicaGenerator::Scope scope(generator);
  const Tensor state = generator.state();
  Tensor x = at::ones({20}).requires_grad_();
  Tensor y = at::dropout(x, 0.5, true);
  y.sum().backward();
  EXPECT_TRUE(same(x.grad(), y.detach()));  // the mask of forward, scaled, on ones
  generator.set_state(state);
  {
    const torch::NoGradGuard no_grad;
    EXPECT_TRUE(same(y.detach(), at::dropout(x, 0.5, true)));
  }
  generator.set_state(state);
  {
    const c10::InferenceMode inference;
    EXPECT_TRUE(same(y.detach().clone(), at::dropout(at::ones({20}), 0.5, true)));
  }
  generator.set_state(state);
  Tensor z = at::rrelu(-x, 0.1, 0.9, true);
  z.sum().backward();
  EXPECT_FALSE(same(z.detach(), y.detach()));
}

TEST(Randomness, StateIsSavedAndReseeded) {
  ReplicaGenerator generator(kSeed, 3);
  const ReplicaGenerator::Scope scope(generator);
  const Tensor first = at::randn({3});  // an odd number leaves a cached one behind
  const Tensor state = generator.state();
  const Tensor second = at::randn({3});
  generator.set_state(state);
  EXPECT_TRUE(same(second, at::randn({3})));
  generator.reseed(kSeed);
  EXPECT_TRUE(same(first, at::randn({3})));
  EXPECT_THROW(generator.set_state(at::zeros({4}, at::kByte)), InvalidUsage);
  EXPECT_THROW(generator.set_state(Tensor()), InvalidUsage);
  EXPECT_THROW(generator.set_state(at::full_like(state, 255)), InvalidUsage);
  EXPECT_TRUE(same(second, at::randn({3})));
}

TEST(Randomness, OtherDevicesAreLeftAlone) {
  ReplicaGenerator generator(kSeed, 0);
  const ReplicaGenerator::Scope scope(generator);
  const Tensor before = generator.state();
  const Tensor meta = at::rand({4}, at::TensorOptions(at::kMeta));
  EXPECT_TRUE(meta.is_meta());
  EXPECT_TRUE(same(before, generator.state()));
}

// A complete training step draws nothing from the process-wide generator.
TEST(Randomness, ANetWithDropoutTrainsAlikeEverywhere) {
  const auto train = [] {
    ReplicaGenerator generator(kSeed, 2);
    const ReplicaGenerator::Scope scope(generator);
    torch::nn::Sequential net(torch::nn::Linear(6, 8), torch::nn::ReLU(), torch::nn::Dropout(0.5),
                              torch::nn::Linear(8, 2));
    torch::optim::SGD sgd(net->parameters(), 0.1);
    const Tensor x = at::rand({4, 6});
    for (int step = 0; step < 3; ++step) {
      sgd.zero_grad();
      net->forward(x).pow(2).sum().backward();
      sgd.step();
    }
    return net->parameters().front().detach().clone();
  };
  const Tensor expected = train();
  const Tensor process_wide = default_state();
  Tensor results[2];
  {
    std::jthread other([&] { results[1] = train(); });
    results[0] = train();
  }
  EXPECT_TRUE(same(expected, results[0]));
  EXPECT_TRUE(same(expected, results[1]));
  EXPECT_TRUE(same(process_wide, default_state()));
}

}  // namespace
}  // namespace lockstep::tensor
