// Ten rows in batches of four on two replicas; then the same data on two workers of one replica
// each, where every worker takes its part of every batch.
#include <lockstep/lockstep.h>
#include <torch/torch.h>

#include <cstdio>

namespace ls = lockstep;

int main(int, char** argv) {
  // Re-executes the program with faster kernels if OpenBLAS does not know this processor.
  ls::choose_blas_kernels(argv);
  const auto dataset = ls::data::range(10).batch(ls::GlobalBatch{4});

  ls::MirroredStrategy strategy({.devices = {"CPU:0", "CPU:1"}});
  const auto scope = strategy.scope();
  const auto batches = strategy.distribute(dataset);
  std::printf("%s", batches.explain().c_str());
  for (const auto& batch : batches) {
    // The sum of all rows divided by their number: exact on the short last batch, too.
    const auto means = strategy.run(
        [](ls::ReplicaContext& replica, const torch::Tensor& x) {
          return x.sum().to(torch::kDouble) / replica.global_batch_size();
        },
        batch);
    std::printf("%d + %d rows, mean %.1f\n", static_cast<int>(batch.rows(0)),
                static_cast<int>(batch.rows(1)),
                strategy.reduce(ls::ReduceOp::sum, means).item<double>());
  }

  // Workers add up a few numbers a step, so that they end together and know the size of the whole.
  ls::coll::run_ranks(2, [&](ls::coll::Session& group) {
    ls::MirroredStrategy worker({.devices = {"CPU:0"}});
    const ls::InputWorkers place{2, group.rank(), [&](std::span<std::int64_t> numbers) {
                                   group.all_reduce(ls::Op::sum, numbers);
                                 }};
    std::int64_t rows = 0;
    for (const auto& batch : worker.distribute(dataset, {.workers = place})) rows += batch.rows(0);
    std::printf("worker %d had %d of 10 rows\n", group.rank(), static_cast<int>(rows));
  });
}
