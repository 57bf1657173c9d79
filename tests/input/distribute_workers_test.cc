// A dataset distributed to several workers: which worker gets which rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <vector>

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

TEST(DistributeWorkers, WholeRoundsEndWithTheFirstWorkerThatRunsOut) {
  const auto seen = seen_by(2, 1, [](Strategy& strategy, const InputOptions& options) {
    return DistributionStrategy(strategy)
        .distribute_dataset([] { return range(5); }, options)
        .dataset();
  });
  EXPECT_THAT(seen[0], ElementsAre(Step{{0}}, Step{{2}}));
  EXPECT_THAT(seen[1], ElementsAre(Step{{1}}, Step{{3}}));
}

/// The type of the elements is known in advance on worker 0 only.
TEST(DistributeWorkers, WorkersEndTogetherWhateverTheyKnowOfTheirElements) {
  const auto seen = seen_by(2, 1, [](Strategy& strategy, const InputOptions& options) {
    return strategy.distribute_from_function(
        [](const InputContext& context) {
          const auto numbers = range(2 + context.input_pipeline_id);
          return context.input_pipeline_id == 0 ? numbers
                                                : numbers.map([](const Tensor& x) { return x; });
        },
        options);
  });
  EXPECT_THAT(seen[0], ElementsAre(Step{{0}}, Step{{1}}));
  EXPECT_EQ(seen[1], seen[0]) << "scalars: a step that is not whole is dropped";
}

// --- Threads and processes. ---------------------------------------------------------------------

/// The rows by step and replica, with the replicas as threads of one process.
template <class D>
std::vector<Step> on_threads(int replicas, const D& dataset) {
  MirroredStrategy strategy(testing::on_cpus(replicas));
  return testing::steps_of(strategy.distribute(dataset));
}
/// The same rows, with the replicas as workers of one replica each.
template <class D>
std::vector<Step> on_one_replica_workers(int replicas, const D& dataset) {
  std::mutex mutex;
  std::vector<Step> steps;
  testing::run_workers({.workers = replicas}, [&](MultiWorkerMirroredStrategy& strategy) {
    const auto own = testing::steps_of(strategy.distribute(dataset));
    const std::lock_guard lock(mutex);
    steps.resize(own.size(), Step(static_cast<std::size_t>(replicas)));
    for (std::size_t s = 0; s < own.size(); ++s) {
      steps[s][static_cast<std::size_t>(strategy.worker_index())] = own[s].at(0);
    }
  });
  return steps;
}

TEST(DistributeWorkers, ThreadsAndWorkersHaveTheSameRowsToTheLastStep) {
  const auto same = [](const Tensor& x) { return x; };
  const auto check = [](const auto& dataset) {
    for (const int replicas : {2, 3, 4}) {
      EXPECT_EQ(on_threads(replicas, dataset), on_one_replica_workers(replicas, dataset))
          << replicas << " replicas of\n"
          << dataset.explain();
    }
  };
  check(range(50).batch(GlobalBatch{16}));
  check(range(50).batch(GlobalBatch{16}).map(same));
  check(range(23).shuffle(7, Seed{3}).batch(GlobalBatch{5}).repeat(2));
  check(range(23).batch(GlobalBatch{6}).shuffle(4, Seed{3}));
  check(range(3).batch(GlobalBatch{8}));
}

// TensorFlow's order: worker w has the slices w, w + workers, ... So where several workers have
// several replicas each, replicas of the same number have other rows than on threads; a step has
// the same rows all the same.
TEST(DistributeWorkers, WorkersOfSeveralReplicasHaveOtherRowsOfTheSameStep) {
  const auto dataset = range(16).batch(GlobalBatch{8});
  const auto threads = on_threads(4, dataset);
  const auto seen = seen_by(2, 2, [&](Strategy& strategy, const InputOptions& options) {
    return strategy.distribute(dataset, options);
  });
  EXPECT_THAT(threads[0], ElementsAre(Rows{0, 1}, Rows{2, 3}, Rows{4, 5}, Rows{6, 7}));
  EXPECT_THAT(seen[0][0], ElementsAre(Rows{0, 1}, Rows{4, 5}));
  EXPECT_THAT(seen[1][0], ElementsAre(Rows{2, 3}, Rows{6, 7}));
  for (std::size_t s = 0; s < threads.size(); ++s) {
    std::multiset<Rows> of_workers(seen[0][s].begin(), seen[0][s].end());
    of_workers.insert(seen[1][s].begin(), seen[1][s].end());
    EXPECT_EQ(of_workers, std::multiset<Rows>(threads[s].begin(), threads[s].end())) << s;
  }
}

TEST(DistributeWorkers, CardinalityIsTheNumberOfStepsOfAllWorkers) {
  const auto check = [](int workers, int replicas, const auto& distribute) {
    on_workers(workers, replicas, [&](Strategy& strategy, const InputWorkers& place) {
      const auto dataset = distribute(strategy, InputOptions{.workers = place});
      EXPECT_EQ(dataset.cardinality(),
                static_cast<std::int64_t>(testing::steps_of(dataset).size()));
    });
  };
  for (const int workers : {2, 3}) {
    for (const int replicas : {1, 2}) {
      for (const auto policy : {AutoShardPolicy::data, AutoShardPolicy::off}) {
        check(workers, replicas, [&](Strategy& strategy, const InputOptions& options) {
          return strategy.distribute(range(23).batch(GlobalBatch{7}).with_options({policy}),
                                     options);
        });
      }
      check(workers, replicas, [&](Strategy& strategy, const InputOptions& options) {
        return strategy.distribute_from_function(
            [](const InputContext& context) {
              return range(3 + 4 * context.input_pipeline_id).batch(PerReplicaBatch{2});
            },
            options);
      });
    }
  }
}

// --- Workers with other pipelines. --------------------------------------------------------------

/// What distribute() says when worker 1 has the second dataset.
template <class A, class B>
std::string difference(const A& first, const B& second) {
  return testing::error_of<Mismatch>([&] {
    testing::run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
      if (strategy.worker_index() == 0) {
        (void)strategy.distribute(first);
      } else {
        (void)strategy.distribute(second);
      }
    });
  });
}

TEST(DistributeWorkers, AWorkerWithAnotherPipelineIsNamedWithTheStage) {
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  const auto rows = [](std::int64_t count, std::uint64_t seed) {
    return data::from_tensor_slices(torch::zeros({count, 3}))
        .shuffle(100, Seed{seed})
        .batch(GlobalBatch{4})
        .prefetch(2);
  };
  EXPECT_THAT(difference(rows(64, 7), rows(64, 8)),
              AllOf(HasSubstr("worker 1 differs from worker 0"),
                    HasSubstr("worker 0 has stage 1 shuffle(100, seed 7)"),
                    HasSubstr("worker 1 has stage 1 shuffle(100, seed 8)")));
  EXPECT_THAT(difference(rows(64, 7), rows(60, 7)),
              AllOf(HasSubstr("worker 0 has stage 2 from_tensor_slices(64 rows) of Float[3]"),
                    HasSubstr("worker 1 has stage 2 from_tensor_slices(60 rows) of Float[3]")));
  EXPECT_THAT(difference(rows(64, 7), rows(64, 7).take(3)),
              AllOf(HasSubstr("worker 0 has stage 0 batch(4 global)"),
                    HasSubstr("worker 1 has stage 0 take(3)")));
  EXPECT_THAT(difference(data::from_tensors(torch::zeros({4, 2})),
                         data::from_tensors(torch::zeros({4, 3}))),
              AllOf(HasSubstr("Float[4, 2]"), HasSubstr("Float[4, 3]")));
}

TEST(DistributeWorkers, AnotherPolicyIsNamed) {
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  const auto rows = [](AutoShardPolicy policy) {
    return range(8).batch(GlobalBatch{4}).with_options({policy});
  };
  EXPECT_THAT(difference(rows(AutoShardPolicy::data), rows(AutoShardPolicy::off)),
              AllOf(HasSubstr("worker 0 has the data divided by elements"),
                    HasSubstr("worker 1 has the data divided by nobody (AutoShardPolicy::off)"),
                    HasSubstr(", at distribute_workers_test.cc:")));
}

// The others would wait for a worker that threw by itself.
TEST(DistributeWorkers, WhatOneWorkerCannotDivideIsEverybodysError) {
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  const auto good = range(8).batch(GlobalBatch{4}).with_options({AutoShardPolicy::data});
  EXPECT_THAT(
      difference(good, range(8).batch(GlobalBatch{4}).with_options({AutoShardPolicy::file})),
      AllOf(HasSubstr("worker 0 has the data divided by elements"),
            HasSubstr("worker 1 has an error: cannot divide by files")));
  EXPECT_THAT(difference(good, range(8)), HasSubstr("worker 1 has an error: distribute: the "
                                                    "elements are not batches"));
  // On every worker it is what it is.
  EXPECT_THAT(testing::error_of<InvalidUsage>([&] {
                testing::run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
                  (void)strategy.distribute(
                      range(8).batch(GlobalBatch{4}).with_options({AutoShardPolicy::file}));
                });
              }),
              HasSubstr("cannot divide by files"));
}

TEST(DistributeWorkers, WorkersGivenByHandAreComparedToo) {
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  const auto rows = [](std::uint64_t seed) {
    return range(64).shuffle(100, Seed{seed}).batch(GlobalBatch{4});
  };
  std::atomic<int> found = 0;
  try {
    on_workers(3, 2, [&](Strategy& strategy, const InputWorkers& place) {
      try {
        (void)strategy.distribute(rows(place.index == 1 ? 8 : 7), InputOptions{.workers = place});
      } catch (const Mismatch& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("worker 1 differs from worker 0"),
                                        HasSubstr("worker 0 has stage 1 shuffle(100, seed 7)"),
                                        HasSubstr("worker 1 has stage 1 shuffle(100, seed 8)"),
                                        HasSubstr(", at distribute_workers_test.cc:")));
        EXPECT_EQ(error.culprits(), std::vector<int>{1});
        ++found;
        throw;
      }
    });
  } catch (const Mismatch&) {
  }
  EXPECT_EQ(found, 3) << "every worker says it";
}

/// The Mismatch of two workers, of which the first does fn(strategy) and the other one waits.
template <class F>
std::string against_a_barrier(const F& fn) {
  try {
    testing::run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
      if (strategy.is_chief()) {
        fn(strategy);
      } else {
        strategy.barrier();
      }
    });
  } catch (const Mismatch& error) {
    return error.what();
  }
  return "no Mismatch";
}

TEST(DistributeWorkers, ADisagreementNamesTheLineOfDistribute) {
  using ::testing::HasSubstr;
  const auto batches = [] { return range(8).batch(GlobalBatch{4}); };
  EXPECT_THAT(against_a_barrier([&](Strategy& strategy) { (void)strategy.distribute(batches()); }),
              HasSubstr("rank 0: distribute the files to read at distribute_workers_test.cc:"));
  EXPECT_THAT(against_a_barrier([&](Strategy& strategy) {
                (void)strategy.distribute_from_function(
                    [](const InputContext&) { return range(8).batch(PerReplicaBatch{2}); });
              }),
              HasSubstr("rank 0: distribute step of a dataset at distribute_workers_test.cc:"));
  std::string step;
  try {
    testing::run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
      const auto dataset = strategy.distribute(batches().with_options({AutoShardPolicy::data}),
                                               {.prefetch_to_device = false});
      const auto iterator = dataset.iterate();
      if (strategy.is_chief()) {
        (void)iterator->get_next();
      } else {
        strategy.barrier();
      }
    });
  } catch (const Mismatch& error) {
    step = error.what();
  }
  EXPECT_THAT(step, HasSubstr("rank 0: step of a dataset at distribute_workers_test.cc:"));
}

TEST(DistributeWorkers, WhatChangesNoElementMayDifferByWorker) {
  testing::run_workers({.workers = 2}, [](MultiWorkerMirroredStrategy& strategy) {
    const int own = 1 + strategy.worker_index();
    const auto same = [](const Tensor& x) { return x; };
    const auto dataset = range(8).map(same, Parallel{own}).batch(GlobalBatch{4}).prefetch(own);
    EXPECT_EQ(testing::steps_of(strategy.distribute(dataset)).size(), 2U);
    const auto off = range(8 * own).batch(GlobalBatch{4}).with_options({AutoShardPolicy::off});
    EXPECT_NO_THROW((void)strategy.distribute(off));
    EXPECT_NO_THROW((void)strategy.distribute_from_function(
        [&](const InputContext&) { return range(8 * own).batch(PerReplicaBatch{own}); }));
  });
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

/// What each worker should see, computed without the library: the rows in the order of the stream
/// are cut into parts, which go to the workers in turn and then to the replicas of each worker.
std::vector<std::vector<Step>> by_the_rules(const Rows& rows, std::int64_t global, int workers,
                                            int replicas) {
  const int all = workers * replicas;
  std::vector<Rows> parts;
  for (std::size_t begin = 0; begin < rows.size(); begin += static_cast<std::size_t>(global)) {
    const std::size_t end = std::min(begin + static_cast<std::size_t>(global), rows.size());
    const auto slices = static_cast<std::size_t>(all);
    std::size_t at = begin;
    for (std::size_t k = 0; k < slices; ++k) {
      const std::size_t last = at + (end - begin) / slices + (k < (end - begin) % slices ? 1U : 0U);
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
      ASSERT_EQ(seen, by_the_rules(testing::flat(source), global, workers, replicas));
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
    for (std::size_t s = 0; s < seen[0].size(); ++s) {
      std::size_t least = seen[0][s][0].size();
      std::size_t most = least;
      for (const std::vector<Step>& steps : seen) {
        for (const Rows& part : steps[s]) {
          least = std::min(least, part.size());
          most = std::max(most, part.size());
        }
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
