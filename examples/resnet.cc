// A small ResNet on Fashion-MNIST: SyncBatchNorm, whose statistics are those of the whole batch
// over all replicas; images that are shifted and mirrored on their way in; evaluation.
//
//   ./resnet [--steps N] [DIRECTORY]     two replicas: threads of this process
//   lockstep launch -n 2 -- ./resnet     two workers with two replicas each
//   ./resnet --check --steps 3           in double, and compared with plain libtorch
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>
#include <exception>
#include <random>
#include <string>
#include <tuple>

#include "program.h"

namespace ls = lockstep;
namespace nn = torch::nn;
using torch::Tensor;

nn::Conv2d convolution(int from, int to, int size, int stride) {
  // Without a bias: the normalisation behind it has one.
  return nn::Conv2d(nn::Conv2dOptions(from, to, size).stride(stride).padding(size / 2).bias(false));
}

// Two convolutions, and a way around them.
struct BlockImpl : nn::Module {
  BlockImpl(int from, int to, int stride) {
    conv1 = register_module("conv1", convolution(from, to, 3, stride));
    norm1 = register_module("norm1", ls::SyncBatchNorm2d(to));
    conv2 = register_module("conv2", convolution(to, to, 3, 1));
    norm2 = register_module("norm2", ls::SyncBatchNorm2d(to));
    around = register_module("around", convolution(from, to, 1, stride));
  }
  Tensor forward(const Tensor& x) {
    return torch::relu(norm2(conv2(torch::relu(norm1(conv1(x))))) + around(x));
  }
  nn::Conv2d conv1{nullptr}, conv2{nullptr}, around{nullptr};
  ls::SyncBatchNorm2d norm1{nullptr}, norm2{nullptr};
};
TORCH_MODULE(Block);

struct ResNetImpl : nn::Module {
  ResNetImpl() {
    register_module("first", first);
    register_module("second", second);
    register_module("third", third);
    register_module("output", output);
  }
  Tensor forward(const Tensor& x) {
    return output(third(second(first(x))).mean({2, 3}));  // the mean over all places
  }
  Block first{1, 8, 2}, second{8, 16, 2}, third{16, 32, 2};
  nn::Linear output{32, 10};
};
TORCH_MODULE(ResNet);

// Images of bytes [n, 28, 28] and their labels [n]; or one of each.
struct Examples {
  Tensor image, label;
  static auto lockstep_members() { return std::tuple(&Examples::image, &Examples::label); }
};

Examples read_examples(const std::string& directory, const std::string& which) {
  const std::string from = directory + "/" + which;
  return {ls::data::read_idx(from + "-images-idx3-ubyte.gz"),
          ls::data::read_idx(from + "-labels-idx1-ubyte.gz").to(torch::kLong)};
}

// [28, 28] bytes as [1, 28, 28] numbers from 0 to 1.
Examples as_numbers(const Examples& example) {
  const Tensor image = example.image.unsqueeze(0).to(torch::get_default_dtype());
  return {image / 255, example.label};
}

// Shifts by up to two pixels and mirrors half of the images. What is done to an image depends on
// its number alone, so every worker prepares the same images.
Examples augment(const std::tuple<Tensor, Examples>& numbered) {
  const auto& [number, example] = numbered;
  std::mt19937 random(static_cast<unsigned>(number.item<std::int64_t>()));
  const int right = static_cast<int>(random() % 5), down = static_cast<int>(random() % 5);
  const Tensor wide = torch::constant_pad_nd(example.image, {2, 2, 2, 2});
  const Tensor image = wide.slice(0, down, down + 28).slice(1, right, right + 28);
  return as_numbers({random() % 2 == 0 ? image : image.flip(1), example.label});
}

auto dataset(const Examples& examples, int steps) {
  return ls::data::from_tensor_slices(examples)
      .shuffle(10'000, ls::Seed{7})
      .repeat()
      .enumerate()  // on through all rounds
      .map(augment, ls::Parallel{2})
      .batch(ls::GlobalBatch{64})
      .take(steps)
      .with_options({ls::AutoShardPolicy::data});
}

// The loss of some rows out of `all`; those of all replicas add up to the mean.
Tensor loss_of(ResNet& net, const Examples& rows, std::int64_t all) {
  return torch::cross_entropy_loss(net(rows.image), rows.label, {}, torch::Reduction::Sum) / all;
}

torch::optim::SGDOptions sgd_options() {
  return torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-4);
}

void train(ls::MultiWorkerMirroredStrategy& strategy, const ls::Model<ResNet>& net,
           const Examples& examples, int steps) {
  const auto sgd = strategy.optimizer<torch::optim::SGD>(net, sgd_options());
  for (const auto& batch : strategy.distribute(dataset(examples, steps))) {
    const auto losses = strategy.run(
        [](ls::ReplicaContext& replica, ResNet& own, ls::Optimizer& opt, const Examples& rows) {
          const Tensor loss = loss_of(own, rows, replica.global_batch_size());
          loss.backward();
          opt.apply(replica);
          return loss.detach();
        },
        net, sgd, batch);
    if (sgd.iterations() % 20 != 0) continue;
    const Tensor loss = strategy.reduce(ls::ReduceOp::sum, losses);  // a call of all workers
    if (!strategy.is_chief()) continue;
    std::printf("step %3d  loss %.3f\n", static_cast<int>(sgd.iterations()), loss.item<double>());
  }
  sgd.check_parameters();  // all copies of all workers are equal
}

// How many are right, in per cent; every row counts once, also those of a short last batch.
double evaluate(ls::Strategy& strategy, const ls::Model<ResNet>& net, const Examples& examples) {
  const torch::NoGradGuard not_recorded;
  const auto batches = strategy.distribute(ls::data::from_tensor_slices(examples)
                                               .map(as_numbers)
                                               .batch(ls::GlobalBatch{300})
                                               .with_options({ls::AutoShardPolicy::data}));
  std::int64_t right = 0;
  for (const auto& batch : batches) {
    const auto hits = strategy.run(
        [](ResNet& own, const Examples& rows) {
          own->eval();  // statistics of the training from here on
          return own(rows.image).argmax(1).eq(rows.label).sum();
        },
        net, batch);
    right += strategy.reduce(ls::ReduceOp::sum, hits).item<std::int64_t>();
  }
  return 100.0 * static_cast<double>(right) / static_cast<double>(examples.label.size(0));
}

// The same training in plain libtorch, where a SyncBatchNorm is a torch::nn::BatchNorm.
void train_alone(ResNet& net, const Examples& examples, int steps) {
  torch::optim::SGD sgd(net->parameters(), sgd_options());
  for (const Examples& batch : dataset(examples, steps)) {
    sgd.zero_grad();
    loss_of(net, batch, batch.label.size(0)).backward();
    sgd.step();
  }
}

int main(int argc, char** argv) try {
  // Re-executes the program with faster kernels if OpenBLAS does not know this processor.
  ls::choose_blas_kernels(argv);
  const auto options =
      program::parse(argc, argv, {.steps = 200, .file = "/usr/share/datasets/fashion-mnist"});
  const Examples training = read_examples(options.file, "train");
  Examples test = read_examples(options.file, "t10k");
  torch::manual_seed(1);
  ls::MultiWorkerMirroredStrategy strategy({.devices = {"CPU:0", "CPU:1"}});  // of each worker
  const auto net = strategy.create<ResNet>();
  train(strategy, net, training, options.steps);
  const double right = evaluate(strategy, net, test);
  if (!strategy.is_chief()) return 0;
  std::printf("%d replicas, %d steps: %.1f %% of the test images are right\n",
              strategy.num_replicas_in_sync(), options.steps, right);
  if (!options.check) return 0;

  torch::manual_seed(1);  // the same weights at the start
  ResNet alone;
  train_alone(alone, training, options.steps);
  return program::report(program::largest_difference(*net[0], *alone));
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
