// A small GPT that learns a text character by character: causal attention, AdamW, gradients that
// are added up over the parts of a batch and clipped by their norm. At the end it writes some text.
//
//   ./transformer [--steps N] [FILE]          two replicas: threads of this process
//   lockstep launch -n 2 -- ./transformer     two workers with two replicas each
//   ./transformer --check --steps 5           in double, and compared with plain libtorch
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "program.h"

namespace ls = lockstep;
namespace nn = torch::nn;
using torch::Tensor;

constexpr int kCharacters = 128;  // ASCII
constexpr int kLength = 32;       // characters that the net looks back at
constexpr int kParts = 2;         // backward passes a step
constexpr double kLargestNorm = 1;

struct BlockImpl : nn::Module {
  BlockImpl(int width, int its_heads) : heads(its_heads) {
    norm1 = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({width})));
    inputs = register_module("inputs", nn::Linear(nn::LinearOptions(width, 3 * width).bias(false)));
    mixed = register_module("mixed", nn::Linear(nn::LinearOptions(width, width).bias(false)));
    norm2 = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({width})));
    hidden = register_module("hidden", nn::Linear(width, 4 * width));
    output = register_module("output", nn::Linear(4 * width, width));
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = x + attend(norm1(x));
    return y + output(torch::gelu(hidden(norm2(y))));
  }
  // Every character looks at itself and at those before it.
  Tensor attend(const Tensor& x) {
    const auto rows = x.size(0), length = x.size(1), width = x.size(2), each = width / heads;
    const Tensor all = inputs(x).view({rows, length, 3, heads, each}).permute({2, 0, 3, 1, 4});
    const Tensor query = all[0], key = all[1], value = all[2];
    const Tensor later = torch::ones({length, length}, torch::kBool).triu(1);
    const Tensor scores = query.matmul(key.transpose(2, 3)) / std::sqrt(each);
    const Tensor weights = scores.masked_fill(later, -INFINITY).softmax(3);
    return mixed(weights.matmul(value).transpose(1, 2).reshape({rows, length, width}));
  }
  std::int64_t heads;
  nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  nn::Linear inputs{nullptr}, mixed{nullptr}, hidden{nullptr}, output{nullptr};
};
TORCH_MODULE(Block);

struct GptImpl : nn::Module {
  GptImpl(int width, int heads, int layers) {
    table = register_parameter("table", 0.02 * torch::randn({kCharacters, width}));
    positions = register_parameter("positions", 0.02 * torch::randn({kLength, width}));
    for (int i = 0; i < layers; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), Block(width, heads)));
    }
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({width})));
  }
  // Scores for the character after each one. The table serves twice: for reading and for writing.
  Tensor forward(const Tensor& text) {
    Tensor x = torch::embedding(table, text) + positions.slice(0, 0, text.size(1));
    for (Block& block : blocks) x = block(x);
    return norm(x).matmul(table.t());
  }
  Tensor table, positions;
  std::vector<Block> blocks;
  nn::LayerNorm norm{nullptr};
};
TORCH_MODULE(Gpt);

std::string read_text(const std::string& file) {
  if (file.empty()) {
    return "Row, row, row your boat, gently down the stream. "
           "Merrily, merrily, merrily, merrily, life is but a dream. "
           "Row, row, row your boat, gently down the stream. ";
  }
  std::ifstream in(file);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (text.size() <= kLength) throw std::runtime_error(file + ": no text, or too short");
  return text;
}

// Each row is a piece of the text: kLength characters and the one after them.
auto dataset(const std::string& text, int steps) {
  const std::vector<std::int64_t> codes(text.begin(), text.end());
  return ls::data::from_tensor_slices(
             (torch::tensor(codes) % kCharacters).unfold(0, kLength + 1, 1))
      .shuffle(10'000, ls::Seed{7})
      .repeat()
      .batch(ls::GlobalBatch{16})
      .take(steps)
      .with_options({ls::AutoShardPolicy::data});
}

// The loss of some rows out of `all`; those of all replicas and parts add up to the mean.
Tensor loss_of(Gpt& net, const Tensor& rows, std::int64_t all) {
  const Tensor scores = net(rows.slice(1, 0, kLength)).flatten(0, 1);
  const Tensor next = rows.slice(1, 1).flatten();
  return torch::cross_entropy_loss(scores, next, {}, torch::Reduction::Sum) / (all * kLength);
}

// One step of a replica: the parts' gradients add up, and leave with the last part.
Tensor step(ls::ReplicaContext& replica, Gpt& net, ls::Optimizer& opt, const Tensor& rows) {
  std::vector<Tensor> losses;
  for (int i = 0; i < kParts; ++i) {
    std::optional<ls::Accumulation> more;  // while it lives nothing is sent
    if (i + 1 < kParts) more.emplace(opt.accumulate());
    const Tensor part = rows.tensor_split(kParts)[static_cast<std::size_t>(i)];
    losses.push_back(loss_of(net, part, replica.global_batch_size()));
    losses.back().backward();
  }
  opt.apply(replica, {.clip_global_norm = kLargestNorm});
  return torch::stack(losses).sum().detach();
}

torch::optim::AdamWOptions adam_options() { return torch::optim::AdamWOptions(3e-3); }

ls::Model<Gpt> train(ls::MultiWorkerMirroredStrategy& strategy, const std::string& text,
                     int steps) {
  const auto scope = strategy.scope();
  const auto net = strategy.create<Gpt>(32, 4, 2);
  const auto adam = strategy.optimizer<torch::optim::AdamW>(net, adam_options());
  for (const auto& batch : strategy.distribute(dataset(text, steps))) {
    const auto losses = strategy.run(step, net, adam, batch);
    if (adam.iterations() % 20 != 0) continue;
    const Tensor loss = strategy.reduce(ls::ReduceOp::sum, losses);  // a call of all workers
    if (!strategy.is_chief()) continue;
    std::printf("step %3d  loss %.3f\n", static_cast<int>(adam.iterations()), loss.item<double>());
  }
  adam.check_parameters();  // all copies of all workers are equal
  return net;
}

// The same in plain libtorch: every step with all rows of the batch at once.
void train_alone(Gpt& net, const std::string& text, int steps) {
  torch::optim::AdamW adam(net->parameters(), adam_options());
  for (const Tensor& batch : dataset(text, steps)) {
    adam.zero_grad();
    loss_of(net, batch, batch.size(0)).backward();
    double squares = 0;
    for (const Tensor& p : net->parameters()) squares += p.grad().square().sum().item<double>();
    const double scale = std::min(1.0, kLargestNorm / std::sqrt(squares));
    for (const Tensor& p : net->parameters()) p.grad().mul_(scale);
    adam.step();
  }
}

std::string write(Gpt& net, std::string text, int characters) {
  const torch::NoGradGuard not_recorded;
  for (int i = 0; i < characters; ++i) {
    const std::string seen = text.size() > kLength ? text.substr(text.size() - kLength) : text;
    const std::vector<std::int64_t> codes(seen.begin(), seen.end());
    const Tensor scores = net((torch::tensor(codes) % kCharacters).unsqueeze(0))[0][-1];
    const Tensor drawn = torch::multinomial((scores / 0.5).softmax(0), 1);
    text += static_cast<char>(drawn.item<std::int64_t>());
  }
  return text;
}

int main(int argc, char** argv) try {
  // Re-executes the program with faster kernels if OpenBLAS does not know this processor.
  ls::choose_blas_kernels(argv);
  const auto options = program::parse(argc, argv, {.steps = 100});
  const std::string text = read_text(options.file);
  torch::manual_seed(1);
  ls::MultiWorkerMirroredStrategy strategy({.devices = {"CPU:0", "CPU:1"}});  // of each worker
  const auto net = train(strategy, text, options.steps);
  if (!strategy.is_chief()) return 0;
  std::printf("%d replicas wrote: %s\n", strategy.num_replicas_in_sync(),
              write(net[0], text.substr(0, 4), 80).c_str());
  if (!options.check) return 0;

  torch::manual_seed(1);  // the same weights at the start
  Gpt alone(32, 4, 2);
  train_alone(alone, text, options.steps);
  return program::report(program::largest_difference(*net[0], *alone));
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
