// A program of somebody who trains with the installed headers and library.
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>

int main() {
  lockstep::MirroredStrategy strategy({.devices = {"CPU:0", "CPU:1"}});
  auto values = strategy.run([](lockstep::ReplicaContext& replica) {
    return torch::full({2}, replica.replica_id_in_sync_group() + 1.0);
  });
  const auto sum = strategy.reduce(lockstep::ReduceOp::sum, values);
  std::printf("two replicas give %g\n", sum[0].item<double>());
  return sum[0].item<double>() == 3 ? 0 : 1;
}
