#include "lockstep/input_iterators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/input/steps.h"

namespace lockstep {
namespace {

using data::range;
using testing::all_of;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::Rows;
using testing::Step;
using testing::step_of;

using InputIterators = testing::TwoReplicas;

TEST_F(InputIterators, Case19TheDefaultStrategyGivesWholeBatches) {
  Strategy& plain = get_strategy();
  EXPECT_EQ(step_of(plain.make_dataset_iterator(range(10).batch(2)).get_next()), (Step{{0, 1}}));
  auto input = DistributionStrategy(plain)
                   .distribute_dataset([] { return range(10).batch(2); })
                   .make_one_shot_iterator();
  EXPECT_EQ(step_of(input.get_next()), (Step{{0, 1}}));
}

TEST_F(InputIterators, IteratorsAreInitialized) {
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

TEST_F(InputIterators, MakeDatasetIteratorNamesTheOtherOne) {
  EXPECT_THAT(error_of<InvalidUsage>([&] { strategy.make_dataset_iterator(range(4)); }),
              ::testing::AllOf(HasSubstr("batch"), HasSubstr("make_input_fn_iterator")));
}

TEST_F(InputIterators, InputFunctions) {
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

TEST_F(InputIterators, ExperimentalRunTakesTheNextBatch) {
  auto input = strategy.make_dataset_iterator(range(4).batch(GlobalBatch{2}));
  const auto step = [](const Tensor& x) { return x + 1; };
  EXPECT_EQ(step_of(strategy.experimental_run(step, input)), (Step{{1}, {2}}));
  EXPECT_EQ(step_of(strategy.experimental_run(step, input)), (Step{{3}, {4}}));
  EXPECT_THROW(strategy.experimental_run(step, input), EndOfData);
}

TEST_F(InputIterators, Case130ArraysComeBackWhole) {
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
