// Training over a dataset with a short last batch: two threads and two workers end with equal bits.
#include <ATen/CPUGeneratorImpl.h>

#include <utility>

#include "tests/train/optimizer_fixtures.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

/// The weights after two passes over so many rows in batches of 16.
std::vector<Tensor> trained(Strategy& strategy, std::int64_t rows) {
  const auto scope = strategy.scope();
  const auto net = strategy.create<TwoLayers>();
  const auto sgd = strategy.optimizer<torch::optim::SGD>(net, rate(0.1).momentum(0.9));
  const Tensor x = torch::randn({rows, 4}, at::detail::createCPUGenerator(3));
  const Tensor y = x.sin().slice(1, 0, 2);
  const auto dataset =
      data::from_tensor_slices(std::pair(x, y)).shuffle(rows, Seed{5}).batch(GlobalBatch{16});
  const auto batches = strategy.distribute(dataset);
  for (int pass = 0; pass < 2; ++pass) {
    std::vector<std::int64_t> sizes;
    for (const auto& batch : batches) {
      sizes.push_back(batch.global_size());
      strategy.run(
          [](ReplicaContext& replica, TwoLayers& own, Optimizer& optimizer,
             const std::pair<Tensor, Tensor>& part) {
            const Tensor squares = (own(part.first) - part.second).square();
            (squares.sum() / replica.global_batch_size()).backward();
            optimizer.apply(replica);
          },
          net, sgd, batch);
    }
    EXPECT_THAT(sizes, ElementsAre(16, 16, 16, rows - 48));
  }
  return values_of(net.variables());
}

/// The last batch is cut into 1 + 0, 1 + 1 and 2 + 1 rows.
TEST(ShortLastBatch, HasTheSameBitsOnThreadsAndOnWorkers) {
  for (const std::int64_t rows : {49, 50, 51}) {
    SCOPED_TRACE(rows);
    MirroredStrategy threads(cpus(2));
    const std::vector<Tensor> expected = trained(threads, rows);
    testing::run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
      expect_equal(trained(strategy, rows), expected);
    });
  }
}

}  // namespace
}  // namespace lockstep
