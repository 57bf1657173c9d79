// Fits w in y = w x with two replicas, each on half of the data.
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>

namespace ls = lockstep;

int main(int, char** argv) {
  // Re-executes the program with faster kernels if OpenBLAS does not know this processor.
  ls::choose_blas_kernels(argv);
  ls::MirroredStrategy strategy({.devices = {"CPU:0", "CPU:1"}});
  auto scope = strategy.scope();
  auto w = ls::variable("w", 0.0, {.trainable = true});
  // Replica 0 has x = 1, 2, replica 1 has x = 3, 4.
  auto xs = strategy.distribute_values_from_function([](const ls::ValueContext& context) {
    return torch::tensor({1.0F, 2.0F}) + 2 * context.replica_id_in_sync_group;
  });

  for (int step = 0; step < 20; ++step) {
    auto losses = strategy.run(
        [&](ls::ReplicaContext& replica, const torch::Tensor& x) {
          auto loss = (w * x - 3 * x).square().mean();
          auto gradient = torch::autograd::grad({loss}, {w.read()})[0];
          replica.merge_call(
              [&](ls::Strategy& s, const ls::PerReplica<torch::Tensor>& gradients) {
                auto mean = s.reduce_to(ls::ReduceOp::mean, gradients, w);
                s.update(
                    w, [](torch::Tensor own, const torch::Tensor& g) { own.sub_(0.05 * g); }, mean);
              },
              gradient);
          return loss.detach();
        },
        xs);
    if (step % 5 == 4) {
      torch::Tensor loss = strategy.reduce(ls::ReduceOp::mean, losses);
      std::printf("step %2d  loss %.6f\n", step + 1, loss.item<float>());
    }
  }
  std::printf("w = %.3f\n", w.read().item<float>());  // 3
}
