#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "tests/input/helpers.h"
#include "tests/input/workers.h"

namespace lockstep {
namespace {

using data::range;
using testing::all_of;
using testing::count;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::numbers_of;
using testing::on_cpus;
using testing::on_workers;
using testing::Rows;

using Step = std::vector<Rows>;  // one list of numbers a replica

Step step_of(const PerReplica<Tensor>& batch) {
  Step step;
  for (int i = 0; i < batch.size(); ++i) step.push_back(numbers_of(batch[i]));
  return step;
}

std::vector<Step> steps_of(const DistributedDataset<Tensor>& dataset) {
  std::vector<Step> steps;
  for (const auto& batch : dataset) steps.push_back(step_of(batch));
  return steps;
}

/// What every worker sees, by worker.
template <class Make>
std::vector<std::vector<Step>> seen_by(int workers, int replicas, const Make& distribute) {
  std::vector<std::vector<Step>> seen(static_cast<std::size_t>(workers));
  on_workers(workers, replicas, [&](Strategy& strategy, const InputWorkers& place) {
    seen[static_cast<std::size_t>(place.index)] =
        steps_of(distribute(strategy, InputOptions{.workers = place}));
  });
  return seen;
}

class Distribute : public ::testing::Test {
 protected:
  MirroredStrategy strategy{on_cpus(2)};
};

// --- One worker. --------------------------------------------------------------------------------

TEST_F(Distribute, AGlobalBatchIsCutEvenly) {
  EXPECT_THAT(steps_of(strategy.distribute(range(12).batch(GlobalBatch{6}))),
              ElementsAre(Step{{0, 1, 2}, {3, 4, 5}}, Step{{6, 7, 8}, {9, 10, 11}}));
  EXPECT_THAT(steps_of(strategy.distribute(range(6).batch(GlobalBatch{5}))),
              ElementsAre(Step{{0, 1, 2}, {3, 4}}, Step{{5}, {}}));
}

TEST_F(Distribute, TheStepKnowsItsSizeAlsoWhenItIsShort) {
  const auto dataset = strategy.distribute(range(1, 10).batch(GlobalBatch{4}));
  const auto scope = strategy.scope();
  std::vector<double> means;
  Rows sizes;
  for (const auto& batch : dataset) {
    const auto sums = strategy.run(
        [](ReplicaContext& replica, const Tensor& x) {
          return x.sum().to(torch::kDouble) / replica.global_batch_size();
        },
        batch);
    means.push_back(strategy.reduce(ReduceOp::sum, sums).item<double>());
    sizes.push_back(batch.global_size());
    EXPECT_EQ(batch.rows(0) + batch.rows(1), batch.global_size());
    EXPECT_DOUBLE_EQ(batch.share(0) + batch.share(1), 1);
    // The true mean, by reduction along the rows, is the same.
    EXPECT_DOUBLE_EQ(strategy.reduce(ReduceOp::mean, batch, along(0)).item<double>(), means.back());
  }
  EXPECT_EQ(sizes, Rows({4, 4, 1}));
  EXPECT_THAT(means, ElementsAre(2.5, 6.5, 9));
}

TEST_F(Distribute, UnbatchedDataIsRefused) {
  EXPECT_THAT(error_of<InvalidUsage>([&] { strategy.distribute(range(4)); }),
              HasSubstr("batch(GlobalBatch"));
  // Behind a function only the first element shows.
  const auto scalars = range(4).map([](const Tensor& x) { return x; });
  const auto dataset = strategy.distribute(scalars);
  EXPECT_THAT(error_of<InvalidUsage>([&] { dataset.iterate()->next(); }), HasSubstr("add batch()"));
}

TEST_F(Distribute, WithoutABatchStageEveryBatchIsSplitByItself) {
  const auto batches =
      data::from_list<Tensor>({torch::arange(4), torch::arange(4, 7)}).map([](const Tensor& x) {
        return x;
      });
  EXPECT_THAT(steps_of(strategy.distribute(batches)),
              ElementsAre(Step{{0, 1}, {2, 3}}, Step{{4, 5}, {6}}));
}

TEST_F(Distribute, StructsAreSharedOutTensorByTensor) {
  struct Example {
    Tensor x, y;
    static auto lockstep_members() { return std::tuple(&Example::x, &Example::y); }
  };
  const auto dataset = strategy.distribute(
      data::from_tensor_slices(Example{torch::arange(6).view({3, 2}), torch::arange(3)})
          .batch(GlobalBatch{3}));
  for (const auto& batch : dataset) {
    EXPECT_EQ(numbers_of(batch[0].x), Rows({0, 1, 2, 3}));
    EXPECT_EQ(numbers_of(batch[1].y), Rows({2}));
    EXPECT_EQ(numbers_of(field(batch, &Example::y)[0]), Rows({0, 1}));
  }
}

TEST_F(Distribute, EachIterationStartsAnew) {
  const auto dataset = strategy.distribute(range(8).shuffle(8, Seed{1}).batch(GlobalBatch{4}));
  const auto first = steps_of(dataset);
  EXPECT_EQ(first.size(), 2U);
  EXPECT_NE(steps_of(dataset), first) << "reshuffled";
}

TEST_F(Distribute, TheEndIsAnError) {
  const auto iterator = strategy
                            .distribute(range(2).batch(GlobalBatch{2}))  //
                            .iterate();
  EXPECT_EQ(step_of(iterator->get_next()), (Step{{0}, {1}}));
  EXPECT_EQ(iterator->get_next_as_optional(), std::nullopt);
  EXPECT_THROW(iterator->get_next(), EndOfData);
}

TEST_F(Distribute, AnExceptionOfThePipelineArrivesAtItsStep) {
  const auto dataset = strategy.distribute(range(8)
                                               .map([](const Tensor& x) {
                                                 if (x.item<std::int64_t>() == 5) {
                                                   throw std::out_of_range("five");
                                                 }
                                                 return x;
                                               })
                                               .batch(GlobalBatch{4}));
  const auto iterator = dataset.iterate();
  EXPECT_EQ(step_of(iterator->get_next()), (Step{{0, 1}, {2, 3}}));
  EXPECT_THROW(iterator->get_next(), std::out_of_range);
}

TEST_F(Distribute, AnErrorCostsItsStepAndNoOther) {
  const auto make = [&] {
    return strategy.distribute_from_function([](const InputContext&) {
      return range(8).batch(PerReplicaBatch{1}).map([](const Tensor& x) {
        if (x.item<std::int64_t>() == 2) throw std::out_of_range("two");
        return x;
      });
    });
  };
  const auto iterator = make().iterate();
  EXPECT_EQ(step_of(iterator->get_next()), (Step{{0}, {1}}));
  EXPECT_THROW(iterator->get_next(), std::out_of_range);
  const DatasetPosition position = iterator->position();
  EXPECT_EQ(step_of(iterator->get_next()), (Step{{4}, {5}}));
  EXPECT_EQ(step_of(make().iterate_from(position)->get_next()), (Step{{4}, {5}}));
}

TEST_F(Distribute, BatchesWithoutRowsEnd) {
  EXPECT_THAT(steps_of(strategy.distribute(data::from_tensors(torch::empty({0, 3})))),
              ElementsAre(Step{{}, {}}));
}

TEST_F(Distribute, PositionsGoOnExactly) {
  for (const bool ahead : {false, true}) {
    const InputOptions options{.prefetch_to_device = ahead};
    const auto make = [&] {
      return strategy.distribute(range(23).shuffle(5, Seed{9}).batch(GlobalBatch{4}), options);
    };
    const auto dataset = make();
    const auto iterator = dataset.iterate();
    std::vector<std::pair<DatasetPosition, Step>> steps;
    for (;;) {
      const DatasetPosition position = iterator->position();
      const auto batch = iterator->next();
      if (!batch) break;
      steps.emplace_back(position, step_of(*batch));
    }
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto rest = make().iterate_from(steps[i].first);
      for (std::size_t k = i; k < steps.size(); ++k) {
        EXPECT_EQ(step_of(rest->get_next()), steps[k].second);
      }
    }
  }
}

TEST_F(Distribute, ElementSpecIsOneForEachReplica) {
  const auto images = data::from_tensor_slices(torch::zeros({10, 3}));
  const auto known = strategy.distribute(images.batch(GlobalBatch{4}, Remainder::drop));
  EXPECT_THAT(known.element_spec(),
              ElementsAre(ElementSpec{{at::kFloat, {2, 3}}}, ElementSpec{{at::kFloat, {2, 3}}}));
  EXPECT_THAT(strategy.distribute(images.batch(GlobalBatch{4})).element_spec()[0],
              ElementsAre(TensorSpec{at::kFloat, {kUnknownLength, 3}}));
}

TEST_F(Distribute, ExplainSaysWhoReadsWhat) {
  EXPECT_EQ(strategy.distribute(range(8).batch(GlobalBatch{5})).explain(),
            "workers: one worker: it reads everything\n"
            "replicas: batches of 5 rows over 2 replicas, cut anew to sizes that differ by at most "
            "one\n"
            "rebatch(3, 2)\nbatch(5 global)\nrange(0, 8, 1)\n");
}

TEST_F(Distribute, OptionsAreChecked) {
  const auto dataset = range(8).batch(GlobalBatch{4});
  const auto per_replica = InputReplicationMode::per_replica;
  EXPECT_THROW(strategy.distribute(dataset, {.replication_mode = per_replica}), Unsupported);
  EXPECT_THAT(error_of<InvalidUsage>(
                  [&] { strategy.distribute(dataset, {.place_dataset_on_device = true}); }),
              HasSubstr("per_replica"));
  EXPECT_THAT(error_of<InvalidUsage>([&] {
                strategy.distribute_from_function(
                    [](const InputContext&) { return range(2); },
                    {.replication_mode = per_replica, .place_dataset_on_device = true});
              }),
              HasSubstr("prefetch_to_device"));
  EXPECT_THROW(strategy.distribute(dataset, {.workers = {2, 0, {}}}), InvalidUsage);
  EXPECT_THROW(strategy.distribute(dataset, {.prefetch_steps = 0}), InvalidUsage);
}

TEST_F(Distribute, InsideAStepItIsRefused) {
  const auto scope = strategy.scope();
  EXPECT_THROW(strategy.run([&] { strategy.distribute(range(4).batch(2)); }), InvalidUsage);
}

// --- From a function. ---------------------------------------------------------------------------

TEST_F(Distribute, Case109WholeElementsForEveryReplica) {
  const auto pairs = [&](std::int64_t n) {
    return steps_of(
        strategy.distribute_from_function([n](const InputContext&) { return range(n); }));
  };
  EXPECT_THAT(pairs(4), ElementsAre(Step{{0}, {1}}, Step{{2}, {3}}));
  EXPECT_THAT(pairs(5), ElementsAre(Step{{0}, {1}}, Step{{2}, {3}})) << "the 5th is dropped";
  const auto squares = strategy.distribute_from_function([](const InputContext&) {
    return data::zip(range(4), range(4).map([](const Tensor& x) { return x * x; }));
  });
  const auto batch = squares.iterate()->get_next();
  EXPECT_EQ(numbers_of(std::get<1>(batch[1])), Rows({1}));
}

TEST_F(Distribute, Case111AShortLastRow) {
  const auto of = [&](Remainder remainder) {
    return steps_of(strategy.distribute_from_function(
        [&](const InputContext&) { return range(9).batch(PerReplicaBatch{2}, remainder); }));
  };
  EXPECT_THAT(of(Remainder::keep),
              ElementsAre(Step{{0, 1}, {2, 3}}, Step{{4, 5}, {6, 7}}, Step{{8}, {}}));
  EXPECT_THAT(of(Remainder::drop), ElementsAre(Step{{0, 1}, {2, 3}}, Step{{4, 5}, {6, 7}}));
}

TEST_F(Distribute, AFunctionForEachReplica) {
  std::vector<std::string> contexts;
  const auto dataset = strategy.distribute_from_function(
      [&](const InputContext& context) {
        contexts.push_back(to_string(context));
        return range(4).shard(context.num_input_pipelines, context.input_pipeline_id);
      },
      {.prefetch_to_device = false, .replication_mode = InputReplicationMode::per_replica});
  EXPECT_THAT(contexts, ElementsAre(HasSubstr("id 0, total: 2"), HasSubstr("id 1, total: 2")));
  EXPECT_THAT(steps_of(dataset), ElementsAre(Step{{0}, {1}}, Step{{2}, {3}}));
}

// --- Several workers. ---------------------------------------------------------------------------

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

// --- Older names. -------------------------------------------------------------------------------

TEST_F(Distribute, Case19TheDefaultStrategyGivesWholeBatches) {
  Strategy& plain = get_strategy();
  EXPECT_EQ(step_of(plain.make_dataset_iterator(range(10).batch(2)).get_next()), (Step{{0, 1}}));
  auto input = DistributionStrategy(plain)
                   .distribute_dataset([] { return range(10).batch(2); })
                   .make_one_shot_iterator();
  EXPECT_EQ(step_of(input.get_next()), (Step{{0, 1}}));
}

TEST_F(Distribute, IteratorsAreInitialized) {
  auto input = strategy.make_dataset_iterator(range(4).batch(GlobalBatch{2}));
  EXPECT_EQ(step_of(input.get_next()), (Step{{0}, {1}}));
  EXPECT_TRUE(input.initialize().empty());
  EXPECT_EQ(step_of(input.get_next()), (Step{{0}, {1}}));
  EXPECT_EQ(step_of(input.get_next()), (Step{{2}, {3}}));
  EXPECT_THROW(input.get_next(), EndOfData);

  DistributionStrategy towers(strategy);
  const auto dataset = towers.distribute_dataset([] { return range(5); });
  auto later = dataset.make_initializable_iterator();
  EXPECT_THAT(error_of<InvalidUsage>([&] { later.get_next(); }), HasSubstr("initialize()"));
  later.initialize();
  EXPECT_EQ(step_of(later.get_next()), (Step{{0}, {1}}));
  auto once = dataset.make_one_shot_iterator();
  EXPECT_EQ(step_of(once.get_next()), (Step{{0}, {1}}));
  EXPECT_EQ(step_of(once.get_next()), (Step{{2}, {3}}));
  EXPECT_THROW(once.get_next(), EndOfData) << "the 5th has no partner";
  EXPECT_THROW(once.initialize(), InvalidUsage);
}

TEST_F(Distribute, MakeDatasetIteratorNamesTheOtherOne) {
  EXPECT_THAT(error_of<InvalidUsage>([&] { strategy.make_dataset_iterator(range(4)); }),
              ::testing::AllOf(HasSubstr("batch"), HasSubstr("make_input_fn_iterator")));
}

TEST_F(Distribute, InputFunctions) {
  auto whole = strategy.make_input_fn_iterator([](const InputContext& context) {
    EXPECT_EQ(context.num_replicas_in_sync, 2);
    return range(5).batch(2);
  });
  EXPECT_EQ(step_of(whole.get_next()), (Step{{0, 1}, {2, 3}}));
  EXPECT_THROW(whole.get_next(), EndOfData) << "one element for two replicas";

  int calls = 0;
  auto endless = strategy.make_input_fn_iterator([&](const InputContext&) {
    return [&calls] { return torch::full({1}, calls++, torch::kLong); };
  });
  EXPECT_EQ(step_of(endless.get_next()), (Step{{0}, {1}}));
  endless.initialize();
  EXPECT_EQ(step_of(endless.get_next()), (Step{{2}, {3}}));
  EXPECT_THROW(strategy.make_input_fn_iterator([](const InputContext&) { return range(1); },
                                               InputReplicationMode::per_replica),
               InvalidUsage);
}

TEST_F(Distribute, ExperimentalRunTakesTheNextBatch) {
  auto input = strategy.make_dataset_iterator(range(4).batch(GlobalBatch{2}));
  const auto step = [](const Tensor& x) { return x + 1; };
  EXPECT_EQ(step_of(strategy.experimental_run(step, input)), (Step{{1}, {2}}));
  EXPECT_EQ(step_of(strategy.experimental_run(step, input)), (Step{{3}, {4}}));
  EXPECT_THROW(strategy.experimental_run(step, input), EndOfData);
}

TEST_F(Distribute, Case130ArraysComeBackWhole) {
  const Tensor x = torch::arange(12).view({6, 2});
  const Tensor y = torch::arange(6);
  const auto dataset = strategy.distribute(
      strategy.make_numpy_dataset(std::tuple(x, y)).repeat(2).batch(GlobalBatch{6}));
  const auto iterator = dataset.iterate();
  for (int step = 0; step < 2; ++step) {
    const auto batch = iterator->get_next();
    std::vector<Tensor> images;
    std::vector<Tensor> labels;
    for (int i = 0; i < batch.size(); ++i) {
      images.push_back(std::get<0>(batch[i]));
      labels.push_back(std::get<1>(batch[i]));
    }
    EXPECT_TRUE(torch::equal(torch::cat(images), x));
    EXPECT_TRUE(torch::equal(torch::cat(labels), y));
  }
  EXPECT_THROW(iterator->get_next(), EndOfData);
  // A list of arrays is one array.
  EXPECT_THAT(all_of(strategy.make_numpy_dataset(
                  std::vector<Tensor>{torch::arange(2), torch::arange(2, 4)})),
              ElementsAre(Rows{0, 1}, Rows{2, 3}));
}

}  // namespace
}  // namespace lockstep
