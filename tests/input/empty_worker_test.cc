// Workers without data: what they get in a step in which another worker has rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/testing.h"
#include "tests/input/steps.h"

namespace lockstep {
namespace {

using data::range;
using ::testing::ElementsAre;
using testing::on_workers;
using testing::Rows;
using testing::seen_by;
using testing::Step;

TEST(DistributeWorkers, Case126AWorkerWithoutDataTakesPart) {
  const auto seen = seen_by(4, 1, [](Strategy& strategy, const InputOptions& options) {
    return strategy.distribute(range(2).batch(GlobalBatch{4}), options);
  });
  EXPECT_THAT(seen, ElementsAre(std::vector<Step>{{{0}}}, std::vector<Step>{{{1}}},
                                std::vector<Step>{{{}}}, std::vector<Step>{{{}}}));
  const auto nothing = seen_by(2, 1, [](Strategy& strategy, const InputOptions& options) {
    return strategy.distribute(range(0).batch(GlobalBatch{4}), options);
  });
  EXPECT_THAT(nothing, ElementsAre(std::vector<Step>{}, std::vector<Step>{}));
}

TEST(DistributeWorkers, WorkersThatRunOutFirstGetEmptyBatches) {
  const auto seen = seen_by(2, 2, [](Strategy& strategy, const InputOptions& options) {
    return strategy.distribute_from_function(
        [](const InputContext& context) {
          return range(context.input_pipeline_id == 0 ? 1 : 5).batch(PerReplicaBatch{1});
        },
        options);
  });
  EXPECT_THAT(seen[0], ElementsAre(Step{{0}, {}}, Step{{}, {}}, Step{{}, {}}));
  EXPECT_THAT(seen[1], ElementsAre(Step{{0}, {1}}, Step{{2}, {3}}, Step{{4}, {}}));
}

TEST(DistributeWorkers, AStepWithoutRowsIsNone) {
  const auto seen = seen_by(2, 1, [](Strategy& strategy, const InputOptions& options) {
    return strategy.distribute(range(2).batch(GlobalBatch{1}).with_options({AutoShardPolicy::off}),
                               options);
  });
  for (const std::vector<Step>& steps : seen) {
    Rows all;
    for (const Step& step : steps) all.insert(all.end(), step[0].begin(), step[0].end());
    EXPECT_EQ(all, Rows({0, 1}));
    EXPECT_EQ(steps.size(), seen[0].size());
  }
  EXPECT_LE(seen[0].size(), 4U);
}

TEST(DistributeWorkers, AWorkersEmptyDatasetIsFilledUp) {
  const auto seen = seen_by(3, 1, [](Strategy& strategy, const InputOptions& options) {
    return strategy.distribute_from_function(
        [](const InputContext& context) {
          return range(2).batch(PerReplicaBatch{1}).shard(3, context.input_pipeline_id);
        },
        options);
  });
  EXPECT_THAT(seen, ElementsAre(std::vector<Step>{{{0}}}, std::vector<Step>{{{1}}},
                                std::vector<Step>{{{}}}));
}

TEST(DistributeWorkers, ScalarsHaveNoEmptyForm) {
  std::atomic<int> errors = 0;
  on_workers(2, 1, [&](Strategy& strategy, const InputWorkers& place) {
    const auto dataset = strategy.distribute_from_function(
        [](const InputContext& context) {
          return range(1 + context.input_pipeline_id).map([](const Tensor& x) { return x; });
        },
        InputOptions{.workers = place});
    const auto iterator = dataset.iterate();
    iterator->get_next();
    try {
      iterator->get_next();
    } catch (const DataError& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("make them batches"));
      ++errors;
    }
  });
  EXPECT_EQ(errors, 2) << "nobody goes on alone";
}

// --- A worker without a single element. ---------------------------------------------------------

/// The batch of worker 1 in the only step of a dataset of which it has no elements.
template <class Make>
auto without_elements(const Make& make) {
  using T = typename decltype(make(std::int64_t{0}))::value_type;
  std::optional<T> empty;
  testing::run_workers({.workers = 2, .replicas = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    const auto dataset = strategy.distribute_from_function(
        [&](const InputContext& context) { return make(context.input_pipeline_id); });
    std::size_t steps = 0;
    for (const auto& batch : dataset) {
      ++steps;
      if (strategy.worker_index() == 1) empty = batch[1];
    }
    EXPECT_EQ(steps, 1U);
  });
  return empty.value();
}

TEST(DistributeWorkers, AWorkerWithoutAnElementLearnsWhatAnEmptyBatchIs) {
  const Tensor number = without_elements(
      [](std::int64_t worker) { return range(1).shard(2, worker).batch(PerReplicaBatch{4}); });
  EXPECT_EQ(number.scalar_type(), torch::kLong);
  EXPECT_EQ(number.sizes(), at::IntArrayRef({0}));
  const Tensor filtered = without_elements([](std::int64_t worker) {
    return data::from_tensor_slices(torch::zeros({2, 3, 5}, torch::kHalf))
        .filter([worker](const Tensor&) { return worker == 0; })
        .batch(PerReplicaBatch{4});
  });
  EXPECT_EQ(filtered.scalar_type(), torch::kHalf);
  EXPECT_EQ(filtered.sizes(), at::IntArrayRef({0, 3, 5}));
  const Tensor none_taken = without_elements([](std::int64_t worker) {
    return range(4)
        .map([](const Tensor& x) { return x.to(torch::kDouble).expand({7}); })
        .take(worker == 0 ? 4 : 0)
        .batch(PerReplicaBatch{4});
  });
  EXPECT_EQ(none_taken.scalar_type(), torch::kDouble);
  EXPECT_EQ(none_taken.sizes(), at::IntArrayRef({0, 7}));
  const Tensor no_rows = without_elements([](std::int64_t worker) {
    return data::from_tensor_slices(torch::ones({worker == 0 ? 2 : 0, 6}))
        .batch(PerReplicaBatch{2});
  });
  EXPECT_EQ(no_rows.sizes(), at::IntArrayRef({0, 6}));
}

/// A key that cannot be sent.
struct Key {
  int number = 0;
  friend auto operator<=>(const Key&, const Key&) = default;
};

TEST(DistributeWorkers, ATypeThatCannotBeDescribedIsNamed) {
  using Parts = std::map<Key, Tensor>;
  std::atomic<int> errors = 0;
  on_workers(2, 1, [&](Strategy& strategy, const InputWorkers& place) {
    const auto dataset = strategy.distribute_from_function(
        [](const InputContext& context) {
          return range(2)
              .map([](const Tensor& x) {
                return Parts{{Key{1}, x}};
              })
              .take(context.input_pipeline_id == 0 ? 2 : 0)
              .batch(PerReplicaBatch{2});
        },
        InputOptions{.workers = place});
    const auto iterator = dataset.iterate();
    try {
      static_cast<void>(iterator->next());
    } catch (const DataError& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("Key"),
                                                 ::testing::HasSubstr("at least one element"),
                                                 ::testing::Not(::testing::HasSubstr("scalars"))));
      ++errors;
    }
  });
  EXPECT_EQ(errors, 2) << "nobody goes on alone";
}

TEST(DistributeWorkers, AnEmptyBatchHasAllPartsOfANest) {
  struct Example {
    std::map<std::string, Tensor> features;
    std::vector<Tensor> boxes;
    std::optional<Tensor> weight;
    std::tuple<Tensor, std::optional<Tensor>> labels;
    static auto lockstep_members() {
      return std::tuple(&Example::features, &Example::boxes, &Example::weight, &Example::labels);
    }
  };
  const Example empty = without_elements([](std::int64_t worker) {
    return range(2)
        .map([](const Tensor& x) {
          return Example{
              .features = {{"image", torch::zeros({2, 2})}, {"a longer name than a word", x}},
              .boxes = {x, torch::zeros({4}, torch::kInt)},
              .weight = torch::ones({}),
              .labels = {x, std::nullopt}};
        })
        .take(worker == 0 ? 2 : 0)
        .batch(PerReplicaBatch{2});
  });
  EXPECT_EQ(empty.features.at("image").sizes(), at::IntArrayRef({0, 2, 2}));
  EXPECT_EQ(empty.features.at("a longer name than a word").scalar_type(), torch::kLong);
  ASSERT_EQ(empty.boxes.size(), 2U);
  EXPECT_EQ(empty.boxes[1].sizes(), at::IntArrayRef({0, 4}));
  EXPECT_EQ(empty.boxes[1].scalar_type(), torch::kInt);
  EXPECT_EQ(empty.weight.value().sizes(), at::IntArrayRef({0}));
  EXPECT_EQ(std::get<0>(empty.labels).sizes(), at::IntArrayRef({0}));
  EXPECT_FALSE(std::get<1>(empty.labels));
}

}  // namespace
}  // namespace lockstep
