// Prediction: trains a net, saves it, loads it on every worker. All replicas share the rows, and
// the chief has every row's answer once, in the order of the rows, although the last batch is
// short.
//
//   ./predict [--steps N] [FILE]               two replicas: threads of this process
//   lockstep launch -n 2 -- ./predict FILE     two workers with two replicas each
//   ./predict --check                          in double, and compared with plain libtorch
//
//   [FILE]: where the trained net is written, over what is there; predict.pt if not given
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>
#include <exception>
#include <string>
#include <utility>

#include "program.h"

namespace ls = lockstep;
namespace nn = torch::nn;
using torch::Tensor;

constexpr std::int64_t kRows = 1003;  // 31 batches of 32, and one of 11

struct NetImpl : nn::Module {
  NetImpl() {
    register_module("hidden", hidden);
    register_module("norm", norm);
    register_module("dropout", dropout);
    register_module("output", output);
  }
  Tensor forward(const Tensor& x) { return output(dropout(torch::relu(norm(hidden(x))))); }
  nn::Linear hidden{4, 32};
  nn::BatchNorm1d norm{32};
  nn::Dropout dropout{0.1};
  nn::Linear output{32, 3};
};
TORCH_MODULE(Net);

struct Batch {
  Tensor number, x;
  static auto lockstep_members() { return std::tuple(&Batch::number, &Batch::x); }
};

// Each row knows its number.
Batch rows() {
  const Tensor number = torch::arange(kRows);
  const Tensor t = number.to(torch::get_default_dtype()) / 100;
  return {number, torch::stack({t.sin(), t.cos(), (3 * t).sin(), (5 * t).cos()}, 1)};
}
// The class to be found: which of the first three columns is the largest.
Tensor classes(const Tensor& x) { return x.slice(1, 0, 3).argmax(1); }

void train_and_save(ls::MultiWorkerMirroredStrategy& strategy, int steps, const std::string& file) {
  const auto net = strategy.create<Net>();
  const auto adam = strategy.optimizer<torch::optim::Adam>(net, torch::optim::AdamOptions(0.01));
  const auto batches = strategy.distribute(ls::data::from_tensor_slices(rows())
                                               .shuffle(kRows, ls::Seed{7})
                                               .repeat()
                                               .batch(ls::GlobalBatch{32})
                                               .take(steps)
                                               .with_options({ls::AutoShardPolicy::data}));
  for (const auto& batch : batches) {
    strategy.run(
        [](ls::ReplicaContext& replica, Net& own, ls::Optimizer& opt, const Batch& part) {
          const Tensor loss =
              torch::cross_entropy_loss(own(part.x), classes(part.x), {}, torch::Reduction::Sum);
          (loss / replica.global_batch_size()).backward();
          opt.apply(replica);
        },
        net, adam, batch);
  }
  // The statistics of each replica's BatchNorm are its own: their mean is saved.
  net.sync_buffers(ls::BufferSync::mean);
  if (strategy.should_checkpoint()) torch::save(net[0], file);
  adam.check_parameters();  // a meeting of all workers: the file is there when it is over
}

// The scores of all rows, in their order, on every worker.
Tensor predict(ls::Strategy& strategy, const ls::Model<Net>& net) {
  const torch::NoGradGuard not_recorded;
  const auto batches = strategy.distribute(ls::data::from_tensor_slices(rows())
                                               .batch(ls::GlobalBatch{32})
                                               .with_options({ls::AutoShardPolicy::data}));
  Tensor all = torch::full({kRows, 3}, NAN);
  Tensor times = torch::zeros({kRows}, torch::kLong);
  for (const auto& batch : batches) {
    const auto [numbers, scores] = strategy.run(
        [](Net& own, const Batch& part) { return std::pair(part.number, own(part.x)); }, net,
        batch);
    // Replicas may have different numbers of rows, or none. Gathered rows come in the order of the
    // replicas, which is not always that of the rows: their numbers say where they belong.
    const Tensor where = strategy.gather(numbers);
    all.index_copy_(0, where, strategy.gather(scores));
    times.index_add_(0, where, torch::ones_like(where));
  }
  if (!times.eq(1).all().item<bool>()) throw std::runtime_error("a row came twice, or never");
  return all;
}

int main(int argc, char** argv) try {
  // Re-executes the program with faster kernels if OpenBLAS does not know this processor.
  ls::choose_blas_kernels(argv);
  auto options = program::parse(argc, argv, {.steps = 100});
  if (options.file.empty()) options.file = "predict.pt";
  torch::manual_seed(1);
  ls::MultiWorkerMirroredStrategy strategy({.devices = {"CPU:0", "CPU:1"}});  // of each worker
  const auto scope = strategy.scope();
  train_and_save(strategy, options.steps, options.file);

  const auto net = strategy.create<Net>();
  for (int i = 0; i < net.size(); ++i) {  // every copy of every worker
    torch::load(net[i], options.file);
    net[i]->eval();
  }
  const Tensor scores = predict(strategy, net);
  if (!strategy.is_chief()) return 0;

  // Once more in plain libtorch: one net, all rows at once.
  Net alone;
  torch::load(alone, options.file);
  alone->eval();
  const torch::NoGradGuard not_recorded;
  const Batch all = rows();
  const Tensor expected = alone(all.x);
  const bool same = scores.argmax(1).equal(expected.argmax(1));
  std::printf("%d replicas: %d rows, each once and in order; %d right; as in one pass: %s\n",
              strategy.num_replicas_in_sync(), static_cast<int>(scores.size(0)),
              scores.argmax(1).eq(classes(all.x)).sum().item<int>(), same ? "yes" : "no");
  if (!options.check) return same ? 0 : 1;
  return program::report((scores - expected).abs().max().item<double>());
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
