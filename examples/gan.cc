// A Wasserstein GAN with gradient penalty (WGAN-GP): two nets that train against each other, each
// with an optimizer of its own, and a loss that contains a gradient. The generator learns to turn
// noise into points on a circle.
//
//   ./gan [--steps N]                 two replicas: threads of this process
//   lockstep launch -n 2 -- ./gan     two workers with two replicas each
//   ./gan --check --steps 10          in double, and compared with plain libtorch
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <exception>

#include "program.h"

namespace ls = lockstep;
using torch::Tensor;

constexpr int kCriticSteps = 5;  // steps of the critic for one of the generator
constexpr double kRadius = 2;

struct NetImpl : torch::nn::Module {
  NetImpl(int inputs, int outputs)
      : first(inputs, 32),
        second(32, 32),
        // Without a bias: only differences of a critic's scores matter.
        last(torch::nn::LinearOptions(32, outputs).bias(false)) {
    register_module("first", first);
    register_module("second", second);
    register_module("last", last);
  }
  Tensor forward(const Tensor& x) { return last(torch::silu(second(torch::silu(first(x))))); }
  torch::nn::Linear first, second, last;
};
TORCH_MODULE(Net);

// A point of the circle, noise for the generator, and where to look between real and fake.
struct Batch {
  Tensor real, noise, mix;
  static auto lockstep_members() { return std::tuple(&Batch::real, &Batch::noise, &Batch::mix); }
};

// Every worker draws the same rows, and trains with its part of each batch.
Batch rows(std::int64_t count) {
  torch::manual_seed(2);
  const Tensor angle = 2 * M_PI * torch::rand({count});
  return {kRadius * torch::stack({angle.cos(), angle.sin()}, 1), torch::randn({count, 2}),
          torch::rand({count, 1})};
}

auto dataset(int steps) {
  return ls::data::from_tensor_slices(rows(4096))
      .shuffle(4096, ls::Seed{7})
      .repeat()
      .batch(ls::GlobalBatch{64})
      .take(steps)
      .with_options({ls::AutoShardPolicy::data});
}

// The losses of some rows out of a batch of `all` rows. Those of all replicas add up to the loss of
// the batch.
Tensor critic_loss(Net& critic, Net& generator, const Batch& rows, std::int64_t all) {
  const Tensor fake = generator(rows.noise).detach();
  // The penalty: between real and fake points the critic's slope should be 1. create_graph records
  // the gradient, so that the loss can be differentiated once more.
  const Tensor between = (rows.mix * rows.real + (1 - rows.mix) * fake).requires_grad_(true);
  const Tensor slope = torch::autograd::grad({critic(between).sum()}, {between}, {},
                                             /*retain_graph=*/true, /*create_graph=*/true)[0];
  const Tensor penalty = (slope.norm(2, 1) - 1).square();
  return (critic(fake).sum() - critic(rows.real).sum() + penalty.sum()) / all;
}
Tensor generator_loss(Net& critic, Net& generator, const Batch& rows, std::int64_t all) {
  return -critic(generator(rows.noise)).sum() / all;
}

torch::optim::AdamOptions adam(double rate) {
  return torch::optim::AdamOptions(rate).betas({0, 0.9});
}
constexpr double kCriticRate = 3e-3, kGeneratorRate = 2e-3;

struct Nets {
  ls::Model<Net> critic, generator;
};

Nets train(ls::MultiWorkerMirroredStrategy& strategy, int steps) {
  const auto scope = strategy.scope();
  const auto critic = strategy.create<Net>(2, 1);
  const auto generator = strategy.create<Net>(2, 2);
  const auto critic_adam = strategy.optimizer<torch::optim::Adam>(critic, adam(kCriticRate));
  const auto generator_adam =
      strategy.optimizer<torch::optim::Adam>(generator, adam(kGeneratorRate));
  int step = 0;
  for (const auto& batch : strategy.distribute(dataset(steps))) {
    const bool generates = ++step % kCriticSteps == 0;
    const auto losses = strategy.run(
        [&](ls::ReplicaContext& replica, Net& own_critic, ls::Optimizer& critic_opt,
            Net& own_generator, ls::Optimizer& generator_opt, const Batch& rows) {
          const std::int64_t all = replica.global_batch_size();
          const Tensor loss = critic_loss(own_critic, own_generator, rows, all);
          loss.backward();
          critic_opt.apply(replica);
          if (generates) {
            // Goes back through the critic, too; its gradients are not wanted.
            generator_loss(own_critic, own_generator, rows, all).backward();
            critic_opt.discard(replica);
            generator_opt.apply(replica);
          }
          return loss.detach();
        },
        critic, critic_adam, generator, generator_adam, batch);
    if (step % 100 != 0) continue;
    const Tensor loss = strategy.reduce(ls::ReduceOp::sum, losses);  // a call of all workers
    if (strategy.is_chief()) std::printf("step %3d  critic %.3f\n", step, loss.item<double>());
  }
  critic_adam.check_parameters();  // all copies of all workers are equal
  generator_adam.check_parameters();
  return {critic, generator};
}

// The same in plain libtorch: every step with all rows of the batch.
void train_alone(Net& critic, Net& generator, int steps) {
  torch::optim::Adam critic_adam(critic->parameters(), adam(kCriticRate));
  torch::optim::Adam generator_adam(generator->parameters(), adam(kGeneratorRate));
  int step = 0;
  for (const Batch& batch : dataset(steps)) {
    critic_adam.zero_grad();
    critic_loss(critic, generator, batch, batch.real.size(0)).backward();
    critic_adam.step();
    if (++step % kCriticSteps != 0) continue;
    generator_adam.zero_grad();
    generator_loss(critic, generator, batch, batch.real.size(0)).backward();
    generator_adam.step();
  }
}

int main(int argc, char** argv) try {
  // Re-executes the program with faster kernels if OpenBLAS does not know this processor.
  ls::choose_blas_kernels(argv);
  const auto options = program::parse(argc, argv, {.steps = 600});
  torch::manual_seed(1);
  ls::MultiWorkerMirroredStrategy strategy({.devices = {"CPU:0", "CPU:1"}});  // of each worker
  const Nets nets = train(strategy, options.steps);
  if (!strategy.is_chief()) return 0;

  const torch::NoGradGuard not_recorded;
  const Tensor points = nets.generator[0](torch::randn({1000, 2}));
  std::printf("%d replicas: generated points are %.2f away from the centre, real ones %.2f\n",
              strategy.num_replicas_in_sync(), points.norm(2, 1).mean().item<double>(), kRadius);
  if (!options.check) return 0;

  const torch::AutoGradMode recorded(true);
  torch::manual_seed(1);  // the same weights at the start
  Net critic(2, 1), generator(2, 2);
  train_alone(critic, generator, options.steps);
  return program::report(program::largest_difference(*nets.critic[0], *critic) +
                         program::largest_difference(*nets.generator[0], *generator));
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
