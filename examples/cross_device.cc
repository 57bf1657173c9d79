// Three ways to add up what two workers of two replicas each have: within a worker, within a worker
// by hierarchical copy, and over both workers.
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>

namespace ls = lockstep;

int main() {
  const ls::DeviceList devices = {"CPU:0", "CPU:1"};
  const auto worker = [&](ls::coll::Session& group) {
    const int rank = group.rank();
    // One value for each local replica: 1 and 2 on worker 0, 3 and 4 on worker 1.
    const ls::PerReplica<torch::Tensor> value(
        {torch::full({}, 2.0 * rank + 1), torch::full({}, 2.0 * rank + 2)}, devices);

    ls::ReductionToOneDevice one_device;
    ls::HierarchicalCopyAllReduce copies(/*num_packs=*/2);
    ls::CollectiveAllReduce everywhere(std::move(group), devices, {.timeout_seconds = 30});
    const double here = one_device.reduce(ls::ReduceOp::sum, value, "CPU:0")[0].item<double>();
    const double both = copies.reduce(ls::ReduceOp::sum, value, value)[1].item<double>();
    const double all = everywhere.reduce(ls::ReduceOp::mean, value, value)[1].item<double>();
    std::printf("worker %d: sum %.0f, the same by copies %.0f, mean over all workers %.1f\n", rank,
                here, both, all);
  };
  ls::coll::run_ranks(2, worker, {.replicas = 2});
}
