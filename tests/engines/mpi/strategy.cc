// A strategy whose workers are MPI's ranks, because it was told so: no variable says where they
// are.
#include <torch/torch.h>

#include <cstdio>

#include "lockstep/lockstep.h"

using namespace lockstep;

int main() {
  MultiWorkerOptions options;
  options.communication = "mpi";
  options.replicas.pin = false;
  MultiWorkerMirroredStrategy strategy(options);
  const auto scope = strategy.scope();
  const auto ids = strategy.run(
      [](ReplicaContext& replica) { return torch::full({}, replica.replica_id_in_sync_group()); });
  const auto sum = strategy.reduce(ReduceOp::sum, ids).item<int>();
  std::fprintf(stderr, "worker %d of %d by %s: %d\n", strategy.worker_index(),
               strategy.num_workers(), strategy.transport().c_str(), sum);
}
