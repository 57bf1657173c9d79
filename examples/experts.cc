// A mixture of experts over a large table of words: the table's gradients are sparse (only rows
// that were used travel), and an expert that no word was sent to has no gradient in that step.
//
//   ./experts [--steps N]                 two replicas: threads of this process
//   lockstep launch -n 2 -- ./experts     two workers with two replicas each
//   ./experts --check --steps 20          in double, and compared with plain libtorch
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <array>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "program.h"

namespace ls = lockstep;
namespace nn = torch::nn;
using torch::Tensor;

constexpr std::int64_t kWords = 10'000;
constexpr int kExperts = 4;
constexpr int kWidth = 8;

struct MixtureImpl : nn::Module {
  MixtureImpl() {
    table =
        register_module("table", nn::Embedding(nn::EmbeddingOptions(kWords, kWidth).sparse(true)));
    gate = register_module("gate", nn::Linear(kWidth, kExperts));
    for (int i = 0; i < kExperts; ++i) {
      experts.push_back(register_module("expert" + std::to_string(i), nn::Linear(kWidth, 1)));
    }
  }
  // The gate sends each word to one expert. Gives the answers, and how many words each expert had.
  std::pair<Tensor, Tensor> forward(const Tensor& words) {
    const Tensor x = table(words);
    const Tensor weights = gate(x).softmax(1);
    const Tensor chosen = weights.argmax(1);
    Tensor answers = torch::zeros({words.size(0)});
    for (int i = 0; i < kExperts; ++i) {
      const Tensor rows = chosen.eq(i).nonzero().squeeze(1);
      if (rows.size(0) == 0) continue;  // this expert takes no part in the loss
      const Tensor own = experts[static_cast<std::size_t>(i)](x.index_select(0, rows)).squeeze(1);
      answers = answers.index_add(0, rows, own * weights.index_select(0, rows).select(1, i));
    }
    return {answers, torch::bincount(chosen, {}, kExperts)};
  }
  nn::Embedding table{nullptr};
  nn::Linear gate{nullptr};
  std::vector<nn::Linear> experts;
};
TORCH_MODULE(Mixture);

// 64 of the words come up again and again.
auto dataset(int steps) {
  return ls::data::from_tensor_slices(torch::arange(64) * 151)
      .shuffle(64, ls::Seed{7})
      .repeat()
      .batch(ls::GlobalBatch{8})
      .take(steps)
      .with_options({ls::AutoShardPolicy::data});
}

// What is to be learned about a word.
Tensor target(const Tensor& words) {
  return (words % 7 - words % 3).to(torch::get_default_dtype());
}

// The loss of some rows out of `all`; those of all replicas add up to the mean.
Tensor loss_of(const Tensor& answers, const Tensor& words, std::int64_t all) {
  return (answers - target(words)).square().sum() / all;
}

// Adagrad and SGD take sparse gradients; torch's other optimizers do not.
torch::optim::AdagradOptions adagrad_options() { return torch::optim::AdagradOptions(0.2); }

ls::Model<Mixture> train(ls::MultiWorkerMirroredStrategy& strategy, int steps) {
  const auto scope = strategy.scope();
  const auto net = strategy.create<Mixture>();
  // Experts without a word on any replica of any worker are left alone in that step.
  const auto adagrad =
      strategy.optimizer<torch::optim::Adagrad>(net, adagrad_options(), {.allow_unused = true});
  std::array<int, kExperts> idle{};
  double first = 0, last = 0;
  for (const auto& batch : strategy.distribute(dataset(steps))) {
    const auto [losses, counts] = strategy.run(
        [](ls::ReplicaContext& replica, Mixture& own, ls::Optimizer& opt, const Tensor& words) {
          const auto [answers, count] = own(words);
          const Tensor loss = loss_of(answers, words, replica.global_batch_size());
          loss.backward();
          opt.apply(replica);
          return std::pair(loss.detach(), count);
        },
        net, adagrad, batch);
    last = strategy.reduce(ls::ReduceOp::sum, losses).item<double>();
    if (adagrad.iterations() == 1) first = last;
    const Tensor words = strategy.reduce(ls::ReduceOp::sum, counts);
    for (int i = 0; i < kExperts; ++i) {
      if (words[i].item<int>() == 0) ++idle[static_cast<std::size_t>(i)];
    }
  }
  adagrad.check_parameters();  // all copies of all workers are equal
  if (strategy.is_chief()) {
    std::printf("%s%d replicas: loss %.3f at first, %.3f after %d steps\n",
                adagrad.explain().c_str(), strategy.num_replicas_in_sync(), first, last, steps);
    for (int i = 0; i < kExperts; ++i) {
      std::printf("expert %d had no word in %d steps\n", i, idle[static_cast<std::size_t>(i)]);
    }
  }
  return net;
}

// The same in plain libtorch: every step with all rows of the batch.
void train_alone(Mixture& net, int steps) {
  torch::optim::Adagrad adagrad(net->parameters(), adagrad_options());
  for (const Tensor& words : dataset(steps)) {
    for (Tensor& p : net->parameters()) p.mutable_grad().reset();  // zero_grad() leaves zeros
    loss_of(net(words).first, words, words.size(0)).backward();
    adagrad.step();
  }
}

int main(int argc, char** argv) try {
  // Re-executes the program with faster kernels if OpenBLAS does not know this processor.
  ls::choose_blas_kernels(argv);
  const auto options = program::parse(argc, argv, {.steps = 200});
  torch::manual_seed(1);
  ls::MultiWorkerMirroredStrategy strategy({.devices = {"CPU:0", "CPU:1"}});  // of each worker
  const auto net = train(strategy, options.steps);
  if (!strategy.is_chief() || !options.check) return 0;

  torch::manual_seed(1);  // the same weights at the start
  Mixture alone;
  train_alone(alone, options.steps);
  return program::report(program::largest_difference(*net[0], *alone));
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
