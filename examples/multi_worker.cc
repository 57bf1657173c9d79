// Training on several workers, each a process that runs this program:
//
//   lockstep launch -n 2 -- ./multi_worker [FILE]
//
// or, on every host, with the cluster in TF_CONFIG. Alone it is one worker. The chief saves to
// FILE.
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>
#include <exception>

namespace ls = lockstep;
using torch::Tensor;

struct Batch {
  Tensor x, y;
  static auto lockstep_members() { return std::tuple(&Batch::x, &Batch::y); }
};

// y = 2 a - 3 b + 0.5, the same rows on every worker: each takes its slices of every batch.
Batch rows() {
  const Tensor a = torch::arange(-30, 30).to(torch::kFloat) / 30;
  const Tensor x = torch::stack({a, a * a}, 1);
  return {x, torch::mv(x, torch::tensor({2.0F, -3.0F})) + 0.5};
}

void train(const char* file) {
  ls::MultiWorkerMirroredStrategy strategy;  // waits until all workers have come
  const auto scope = strategy.scope();
  const auto net = strategy.create<torch::nn::Linear>(2, 1);  // the chief's values, on every worker
  const auto sgd =
      strategy.optimizer<torch::optim::SGD>(net, torch::optim::SGDOptions(0.1).momentum(0.9));
  const auto data = strategy.distribute(ls::data::from_tensor_slices(rows())
                                            .shuffle(60, ls::Seed{7})
                                            .batch(ls::GlobalBatch{16})
                                            .with_options({ls::AutoShardPolicy::data}));

  for (int epoch = 1; epoch <= 40; ++epoch) {
    for (const auto& batch : data) {
      strategy.run(
          [](ls::ReplicaContext& replica, torch::nn::Linear& own, ls::Optimizer& opt,
             const Batch& part) {
            const Tensor errors = own(part.x).squeeze(1) - part.y;
            (errors.square().sum() / replica.global_batch_size()).backward();
            opt.apply(replica);
          },
          net, sgd, batch);
    }
  }
  sgd.check_parameters();  // of all workers: every worker makes this call, as every other above

  if (strategy.is_chief()) {
    const Tensor w = net[0]->weight.flatten();
    std::printf("%d workers, %s: w = %.2f %.2f, b = %.2f\n", strategy.num_workers(),
                strategy.transport().c_str(), w[0].item<double>(), w[1].item<double>(),
                net[0]->bias.item<double>());
  }
  if (strategy.should_checkpoint() && file != nullptr) torch::save(net[0], file);
}

int main(int argc, char** argv) {
  // Re-executes the program with faster kernels if OpenBLAS does not know this processor.
  ls::choose_blas_kernels(argv);
  try {
    train(argc > 1 ? argv[1] : nullptr);
  } catch (const std::exception& error) {  // an ls::Error names the worker that is to blame
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
