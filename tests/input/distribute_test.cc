#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/distributed_dataset.h"
#include "tests/input/steps.h"

namespace lockstep {
namespace {

using data::range;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::numbers_of;
using testing::Rows;
using testing::Step;
using testing::step_of;
using testing::steps_of;

using Distribute = testing::TwoReplicas;

// --- One worker. --------------------------------------------------------------------------------

TEST_F(Distribute, AGlobalBatchIsCutEvenly) {
  EXPECT_THAT(steps_of(strategy.distribute(range(12).batch(GlobalBatch{6}))),
              ElementsAre(Step{{0, 1, 2}, {3, 4, 5}}, Step{{6, 7, 8}, {9, 10, 11}}));
  EXPECT_THAT(steps_of(strategy.distribute(range(6).batch(GlobalBatch{5}))),
              ElementsAre(Step{{0, 1, 2}, {3, 4}}, Step{{5}, {}}));
}

TEST_F(Distribute, AShortLastBatchIsCutEvenlyToo) {
  const auto steps = steps_of(strategy.distribute(range(50).batch(GlobalBatch{16})));
  ASSERT_EQ(steps.size(), 4U);
  EXPECT_EQ(steps[2], (Step{testing::count(32, 40), testing::count(40, 48)}));
  EXPECT_EQ(steps[3], (Step{{48}, {49}}));
  // In the middle of the stream: every batch by itself.
  EXPECT_THAT(
      steps_of(strategy.distribute(range(6).batch(GlobalBatch{4}).repeat(2))),
      ElementsAre(Step{{0, 1}, {2, 3}}, Step{{4}, {5}}, Step{{0, 1}, {2, 3}}, Step{{4}, {5}}));
  MirroredStrategy four(testing::on_cpus(4));
  EXPECT_THAT(steps_of(four.distribute(range(6).batch(GlobalBatch{8}))),
              ElementsAre(Step{{0, 1}, {2, 3}, {4}, {5}}));
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
            "replicas: every batch in 2 slices whose sizes differ by at most one\n"
            "split(each batch in 2)\nbatch(5 global)\nrange(0, 8, 1)\n");
}

TEST_F(Distribute, CardinalityCountsSteps) {
  EXPECT_EQ(strategy.distribute(range(50).batch(GlobalBatch{16})).cardinality(), 4);
  EXPECT_EQ(strategy.distribute(range(50).batch(GlobalBatch{16}, Remainder::drop)).cardinality(),
            3);
  EXPECT_EQ(strategy.distribute(range(50).batch(GlobalBatch{16}).repeat()).cardinality(),
            kInfinite);
  const auto keep = [](const Tensor&) { return true; };
  EXPECT_EQ(strategy.distribute(range(50).filter(keep).batch(GlobalBatch{16})).cardinality(),
            kUnknownCardinality);
  const auto whole = [&](std::int64_t batches, Remainder remainder) {
    return strategy
        .distribute_from_function([&](const InputContext&) {
          return range(2 * batches).batch(PerReplicaBatch{2}, remainder);
        })
        .cardinality();
  };
  EXPECT_EQ(whole(5, Remainder::keep), 3) << "the last one with an empty batch";
  EXPECT_EQ(whole(5, Remainder::drop), 2) << "a step that is not whole is dropped";
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

}  // namespace
}  // namespace lockstep
