// A strategy whose workers are MPI's ranks, because it was told so: no variable says where they
// are. Two replicas each, and enough gradients for both lanes of a worker to add them up.
#include <torch/torch.h>

#include <cstdio>

#include "lockstep/lockstep.h"

using namespace lockstep;

int main() {
  MultiWorkerOptions options;
  options.communication = "mpi";
  options.devices = {"CPU:0", "CPU:1"};
  MultiWorkerMirroredStrategy strategy(options);
  const auto scope = strategy.scope();
  const Variable w = variable("w", torch::zeros({40'000}), {.trainable = true});
  const auto sgd =
      strategy.optimizer<torch::optim::SGD>(std::vector{w}, torch::optim::SGDOptions(1));
  strategy.run(
      [&](ReplicaContext& replica, Optimizer& optimizer) {
        (w.read().sum() * replica.replica_id_in_sync_group()).backward();
        optimizer.apply(replica);
      },
      sgd);
  std::fprintf(stderr, "worker %d of %d by %s: w is %d to %d\n", strategy.worker_index(),
               strategy.num_workers(), strategy.transport().c_str(), w[1].min().item<int>(),
               w[1].max().item<int>());
}
