#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <numeric>
#include <set>

#include "lockstep/testing.h"
#include "tests/input/steps.h"

namespace lockstep {
namespace {

using data::range;
using testing::count;
using ::testing::ElementsAre;
using testing::on_workers;
using testing::Rows;
using testing::seen_by;
using testing::Step;

TEST(DistributeWorkers, Case113ByData) {
  const auto of = [](Remainder remainder) {
    return seen_by(2, 1, [&](Strategy& strategy, const InputOptions& options) {
      return strategy.distribute(range(9).batch(GlobalBatch{2}, remainder), options);
    });
  };
  const auto kept = of(Remainder::keep);
  EXPECT_THAT(kept[0], ElementsAre(Step{{0}}, Step{{2}}, Step{{4}}, Step{{6}}, Step{{8}}));
  EXPECT_THAT(kept[1], ElementsAre(Step{{1}}, Step{{3}}, Step{{5}}, Step{{7}}, Step{{}}));
  const auto dropped = of(Remainder::drop);
  EXPECT_EQ(dropped[0].size(), 4U);
  EXPECT_EQ(dropped[1].size(), 4U);
}

TEST(DistributeWorkers, Case115ElementsByData) {
  const auto of = [](AutoShardPolicy policy) {
    return seen_by(2, 1, [&](Strategy& strategy, const InputOptions& options) {
      return DistributionStrategy(strategy)
          .distribute_dataset([&] { return range(4).with_options({policy}); }, options)
          .dataset();
    });
  };
  const auto automatic = of(AutoShardPolicy::automatic);
  EXPECT_THAT(automatic[0], ElementsAre(Step{{0}}, Step{{2}}));
  EXPECT_THAT(automatic[1], ElementsAre(Step{{1}}, Step{{3}}));
  const auto off = of(AutoShardPolicy::off);
  EXPECT_EQ(off[0], off[1]);
  EXPECT_EQ(off[0].size(), 4U);
}

TEST(DistributeWorkers, Case110TwoWorkersWithTwoTowers) {
  const auto seen = seen_by(2, 2, [](Strategy& strategy, const InputOptions& options) {
    return DistributionStrategy(strategy)
        .distribute_dataset([] { return range(8); }, options)
        .dataset();
  });
  // Worker 0 then worker 1: [0, 2, 1, 3], [4, 6, 5, 7].
  EXPECT_THAT(seen[0], ElementsAre(Step{{0}, {2}}, Step{{4}, {6}}));
  EXPECT_THAT(seen[1], ElementsAre(Step{{1}, {3}}, Step{{5}, {7}}));
}

TEST(DistributeWorkers, Case117OffIsRebatchedAllTheSame) {
  const auto off = [](auto dataset) {
    return seen_by(2, 1, [dataset](Strategy& strategy, const InputOptions& options) {
      return strategy.distribute(dataset.with_options({AutoShardPolicy::off}), options);
    });
  };
  const auto known = off(range(12).batch(GlobalBatch{8}));
  EXPECT_EQ(known[0], known[1]);
  EXPECT_THAT(known[0], ElementsAre(Step{count(0, 4)}, Step{count(4, 8)}, Step{count(8, 12)}));
  const auto unknown = off(
      data::from_list<Tensor>({torch::arange(8), torch::arange(8, 12)}).map([](const Tensor& x) {
        return x;
      }));
  EXPECT_THAT(unknown[0], ElementsAre(Step{count(0, 4)}, Step{count(4, 8)}, Step{count(8, 10)},
                                      Step{count(10, 12)}));
}

TEST(DistributeWorkers, Case119AShortSecondStep) {
  const auto seen = seen_by(2, 1, [](Strategy& strategy, const InputOptions& options) {
    return strategy.distribute(range(14).batch(GlobalBatch{8}), options);
  });
  EXPECT_EQ(seen[0][1], Step{count(8, 11)});
  EXPECT_EQ(seen[1][1], Step{count(11, 14)});
  const auto from_function = seen_by(2, 1, [](Strategy& strategy, const InputOptions& options) {
    return strategy.distribute_from_function(
        [](const InputContext& context) {
          return range(14)
              .batch(PerReplicaBatch{4})
              .shard(context.num_input_pipelines, context.input_pipeline_id);
        },
        options);
  });
  EXPECT_EQ(from_function[0][1], Step{count(8, 12)});
  EXPECT_EQ(from_function[1][1], (Step{{12, 13}}));
}

TEST(DistributeWorkers, Case120EachWorkersOwnPipeline) {
  const auto seen = seen_by(2, 1, [](Strategy& strategy, const InputOptions& options) {
    return strategy.distribute_from_function(
        [](const InputContext& context) {
          return range(100)
              .batch(PerReplicaBatch{5})
              .shard(context.num_input_pipelines, context.input_pipeline_id);
        },
        options);
  });
  const auto sum = [](const Rows& rows) { return std::accumulate(rows.begin(), rows.end(), 0); };
  EXPECT_EQ(sum(seen[0][0][0]), 10);
  EXPECT_EQ(sum(seen[1][0][0]), 35);
}

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

TEST(DistributeWorkers, WholeRoundsEndWithTheFirstWorkerThatRunsOut) {
  const auto seen = seen_by(2, 1, [](Strategy& strategy, const InputOptions& options) {
    return DistributionStrategy(strategy)
        .distribute_dataset([] { return range(5); }, options)
        .dataset();
  });
  EXPECT_THAT(seen[0], ElementsAre(Step{{0}}, Step{{2}}));
  EXPECT_THAT(seen[1], ElementsAre(Step{{1}}, Step{{3}}));
}

TEST(DistributeWorkers, ScalarsHaveNoEmptyForm) {
  const auto uneven = [](Strategy& strategy, const InputOptions& options) {
    return strategy.distribute_from_function(
        [](const InputContext& context) {
          return range(1 + context.input_pipeline_id).map([](const Tensor& x) { return x; });
        },
        options);
  };
  EXPECT_THROW(seen_by(2, 1, uneven), DataError);
}

TEST(DistributeWorkers, TheGlobalSizeIsThatOfAllWorkers) {
  std::mutex mutex;
  std::multiset<std::int64_t> sizes;
  on_workers(3, 2, [&](Strategy& strategy, const InputWorkers& place) {
    const auto dataset =
        strategy.distribute(range(20).batch(GlobalBatch{12}), InputOptions{.workers = place});
    for (const auto& batch : dataset) {
      const std::lock_guard lock(mutex);
      sizes.insert(batch.global_size());
    }
  });
  EXPECT_EQ(sizes, (std::multiset<std::int64_t>{8, 8, 8, 12, 12, 12}));
}

/// What the workers see by the rules, told apart from the code: rows in the order of the stream,
/// cut into parts, dealt out among the workers and then among each one's replicas.
std::vector<std::vector<Step>> by_the_rules(const Rows& rows, std::int64_t global, int workers,
                                            int replicas, bool even) {
  const int all = workers * replicas;
  std::vector<Rows> parts;
  for (std::size_t begin = 0; begin < rows.size(); begin += static_cast<std::size_t>(global)) {
    const std::size_t end = std::min(begin + static_cast<std::size_t>(global), rows.size());
    const auto ceiling =
        (end - begin + static_cast<std::size_t>(all) - 1) / static_cast<std::size_t>(all);
    std::size_t at = begin;
    for (int k = 0; k < all; ++k) {
      const std::size_t size =
          even ? static_cast<std::size_t>(global / all + (k < global % all ? 1 : 0)) : ceiling;
      const std::size_t last = std::min(at + size, end);
      parts.emplace_back(rows.begin() + static_cast<std::ptrdiff_t>(at),
                         rows.begin() + static_cast<std::ptrdiff_t>(last));
      at = last;
    }
  }
  std::vector<std::vector<Step>> seen(static_cast<std::size_t>(workers));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto& steps = seen[i % static_cast<std::size_t>(workers)];
    const std::size_t turn = i / static_cast<std::size_t>(workers);
    if (turn % static_cast<std::size_t>(replicas) == 0) steps.emplace_back();
    steps.back().push_back(parts[i]);
  }
  return seen;
}

// --- Properties. --------------------------------------------------------------------------------

TEST(DistributeWorkers, EveryElementIsUsedExactlyOnce) {
  detail::Randomness random(42);
  for (int trial = 0; trial < 40; ++trial) {
    const int workers = 1 + static_cast<int>(random.below(8));
    const int replicas = 1 + static_cast<int>(random.below(4));
    const auto rows = static_cast<std::int64_t>(random.below(60));
    const auto global = 1 + static_cast<std::int64_t>(random.below(20));
    const bool opaque = random.below(2) == 1;
    const bool shuffled = random.below(2) == 1;
    const bool off = random.below(4) == 0;
    SCOPED_TRACE(::testing::Message()
                 << "trial " << trial << ": " << workers << " workers, " << replicas
                 << " replicas, " << rows << " rows, batches of " << global
                 << (opaque ? ", size not known" : "") << (off ? ", off" : ""));
    const auto seen = seen_by(workers, replicas, [&](Strategy& strategy, InputOptions options) {
      options.prefetch_to_device = trial % 2 == 0;
      auto source = range(rows);
      if (shuffled) source = source.shuffle(16, Seed{7});
      auto dataset = source.batch(GlobalBatch{global})
                         .with_options({off ? AutoShardPolicy::off : AutoShardPolicy::automatic});
      if (opaque) dataset = dataset.map([](const Tensor& x) { return x; });
      return strategy.distribute(dataset, options);
    });
    auto source = range(rows);
    if (shuffled) source = source.shuffle(16, Seed{7});
    const bool by_data = workers > 1 && !off;
    if (by_data || workers == 1) {
      ASSERT_EQ(seen, by_the_rules(testing::flat(source), global, workers, replicas,
                                   !opaque && !by_data && workers * replicas > 1));
    }
    std::multiset<std::int64_t> all;
    for (std::size_t w = 0; w < seen.size(); ++w) {
      ASSERT_EQ(seen[w].size(), seen[0].size()) << "workers end together";
      for (const Step& step : seen[w]) {
        ASSERT_EQ(step.size(), static_cast<std::size_t>(replicas));
        for (const Rows& part : step) all.insert(part.begin(), part.end());
      }
      if (workers > 1 && off) {
        ASSERT_EQ(all.size(), static_cast<std::size_t>(rows)) << "each worker sees everything";
        all.clear();
      }
    }
    if (workers > 1 && off) continue;
    const Rows expected = count(0, rows);
    ASSERT_EQ(all, (std::multiset<std::int64_t>(expected.begin(), expected.end())));
    if (workers > 1 || opaque) continue;
    for (std::size_t s = 0; s + 1 < seen[0].size(); ++s) {
      std::size_t least = seen[0][s][0].size();
      std::size_t most = least;
      for (const Rows& part : seen[0][s]) {
        least = std::min(least, part.size());
        most = std::max(most, part.size());
      }
      ASSERT_LE(most - least, 1U) << "step " << s;
    }
  }
}

TEST(DistributeWorkers, AMultiWorkerStrategyKnowsItsWorkers) {
  std::atomic<std::int64_t> rows = 0;
  testing::run_workers({.workers = 2, .replicas = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const auto dataset = data::range(10).batch(GlobalBatch{4});
    for (const auto& batch : strategy.distribute(dataset)) {
      strategy.run(
          [&](ReplicaContext& replica, const Tensor& x) {
            EXPECT_GT(replica.global_batch_size(), 0);
            rows += x.size(0);
          },
          batch);
    }
  });
  EXPECT_EQ(rows, 10);
}

// Every worker reads everything: a batch that cannot be made is an error for all of them, also
// where another worker's slice comes first.
TEST(DistributeWorkers, ABatchThatCannotBeMadeIsEveryWorkersError) {
  std::atomic<int> errors = 0;
  const auto dataset = range(10)
                           .map([](const Tensor& x) {
                             if (x.item<std::int64_t>() == 5) throw DataError("five is broken");
                             return x;
                           })
                           .batch(GlobalBatch{2});
  testing::run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const auto data = strategy.distribute(dataset);
    const auto iterator = data.iterate();
    for (int step = 0; step < 5; ++step) {
      try {
        iterator->next();
      } catch (const DataError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("five is broken"));
        EXPECT_EQ(step, 2);
        ++errors;
      }
    }
  });
  EXPECT_EQ(errors, 2);
}

}  // namespace
}  // namespace lockstep
