// Large batches in little memory: the gradients of several backward passes add up on each replica,
// and are summed over the replicas once. One worker or several:
//
//   lockstep launch -n 2 -- ./accumulation
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>
#include <optional>

namespace ls = lockstep;
using torch::Tensor;

// Two passes over 64 rows in steps of 16, each of which is so many batches; gives the weight.
Tensor train(ls::MultiWorkerMirroredStrategy& strategy, int batches_a_step) {
  const auto net = strategy.create<torch::nn::Linear>(4, 1);
  net.variables()[0].assign(torch::zeros({1, 4}));
  net.variables()[1].assign(torch::zeros({1}));
  const auto sgd = strategy.optimizer<torch::optim::SGD>(net, torch::optim::SGDOptions(0.1));
  const Tensor x = torch::linspace(-1, 1, 64 * 4).view({64, 4});
  const auto data = strategy.distribute(ls::data::from_tensor_slices(x)
                                            .batch(ls::GlobalBatch{16 / batches_a_step})
                                            .with_options({ls::AutoShardPolicy::data}));

  int batches = 0;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const auto& batch : data) {
      const bool last = ++batches % batches_a_step == 0;
      strategy.run(
          [&](ls::ReplicaContext& replica, torch::nn::Linear& own, ls::Optimizer& opt,
              const Tensor& rows) {
            std::optional<ls::Accumulation> more;  // while it lives nothing is sent
            if (!last) more.emplace(opt.accumulate());
            // Divided by the rows of the whole step, not of this batch.
            const auto all = static_cast<double>(replica.global_batch_size() * batches_a_step);
            ((own(rows) - rows.sum(1, true)).square().sum() / all).backward();
            if (last) opt.apply(replica);
          },
          net, sgd, batch);
    }
  }
  if (strategy.is_chief()) {
    std::printf("%2d batches, %d steps\n", batches, static_cast<int>(sgd.iterations()));
  }
  return net[0]->weight.detach();
}

int main(int, char** argv) try {
  // Re-executes the program with faster kernels if OpenBLAS does not know this processor.
  ls::choose_blas_kernels(argv);
  ls::MultiWorkerMirroredStrategy strategy({.devices = {"CPU:0", "CPU:1"}});  // of each worker
  const auto scope = strategy.scope();
  const Tensor at_once = train(strategy, 1);
  const Tensor in_parts = train(strategy, 4);
  if (!strategy.is_chief()) return 0;
  std::printf("the same weights up to rounding: %s\n",
              torch::allclose(at_once, in_parts) ? "yes" : "no");
} catch (const ls::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
