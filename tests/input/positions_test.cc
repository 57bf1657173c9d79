// A position in a distributed dataset: on all workers, in another layout, of another pipeline.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/testing.h"
#include "tests/input/steps.h"

namespace lockstep {
namespace {

using data::range;
using testing::Step;

/// Every worker resumes from the chief's position and gets the rest of the first pass.
template <class Distribute>
void expect_the_chiefs_position_is_everybodys(const Distribute& distribute) {
  std::string chiefs;  // set by the chief before all meet in a step
  testing::run_workers({.workers = 2, .replicas = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    const auto first = distribute(strategy);
    const auto iterator = first.iterate();
    iterator->get_next();
    iterator->get_next();
    if (strategy.worker_index() == 0) chiefs = iterator->position().to_string();
    std::vector<Step> rest{testing::step_of(iterator->get_next())};
    while (const auto batch = iterator->next()) rest.push_back(testing::step_of(*batch));
    const auto again = distribute(strategy);
    const auto resumed = again.iterate_from(DatasetPosition::parse(chiefs));
    for (const Step& step : rest) EXPECT_EQ(testing::step_of(resumed->get_next()), step);
    EXPECT_FALSE(resumed->next());
  });
}

TEST(DistributeWorkers, APositionMeansTheSameOnAllWorkers) {
  for (const auto policy : {AutoShardPolicy::data, AutoShardPolicy::off}) {
    expect_the_chiefs_position_is_everybodys([&](Strategy& strategy) {
      return strategy.distribute(
          range(50).shuffle(9, Seed{2}).batch(GlobalBatch{8}).with_options({policy}));
    });
  }
  expect_the_chiefs_position_is_everybodys([](Strategy& strategy) {
    return strategy.distribute_from_function([](const InputContext& context) {
      return range(40)
          .shard(context.num_input_pipelines, context.input_pipeline_id)
          .shuffle(9, Seed{static_cast<std::uint64_t>(context.input_pipeline_id)})
          .batch(PerReplicaBatch{3});
    });
  });
}

/// A dataset that is sharded by data has the same steps in every layout.
TEST(DistributeWorkers, APositionOfThreadsIsOneOfWorkers) {
  const auto dataset = range(50).shuffle(9, Seed{2}).batch(GlobalBatch{8});
  MirroredStrategy threads(testing::on_cpus(2));
  const auto distributed = threads.distribute(dataset);
  const auto iterator = distributed.iterate();
  for (int i = 0; i < 3; ++i) iterator->get_next();
  const DatasetPosition position = iterator->position();
  const Step next = testing::step_of(iterator->get_next());
  testing::run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    const auto resumed = strategy.distribute(dataset).iterate_from(position);
    EXPECT_EQ(testing::step_of(resumed->get_next())[0],
              next[static_cast<std::size_t>(strategy.worker_index())]);
  });
}

TEST(DistributeWorkers, APositionOfAnotherWorkersPipelineIsRefused) {
  testing::run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    const auto of = [&](std::int64_t rows_of_worker_1) {
      return strategy.distribute_from_function([&](const InputContext& context) {
        return range(context.input_pipeline_id == 1 ? rows_of_worker_1 : 8)
            .batch(PerReplicaBatch{2});
      });
    };
    const auto position = of(8).iterate()->position();
    EXPECT_NO_THROW((void)of(8).iterate_from(position));
    EXPECT_THROW((void)of(6).iterate_from(position), InvalidUsage) << "the chief knows it, too";
  });
}

}  // namespace
}  // namespace lockstep
