#include "lockstep/detail/sharding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <sstream>

#include "lockstep/dataset.h"
#include "tests/input/helpers.h"

namespace lockstep {
namespace {

using data::range;
using detail::batch_sizes;
using detail::choose_sharding;
using detail::known_batch_size;
using detail::Sharding;
using testing::all_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Rows;

template <class F>
std::string usage_error(Code code, const F& call) {
  try {
    call();
  } catch (const InvalidUsage& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "nothing was thrown";
}

Dataset<Tensor> rebatched(const Dataset<Tensor>& batches, Rows sizes,
                          Remainder remainder = Remainder::keep) {
  return Dataset<Tensor>(std::make_shared<detail::RebatchStage<Tensor>>(
      batches.stage(), std::move(sizes), 1, remainder == Remainder::drop));
}

TEST(Rebatch, Case122SizesInTurn) {
  EXPECT_THAT(all_of(rebatched(range(5).batch(4), {2, 2})),
              ElementsAre(Rows{0, 1}, Rows{2, 3}, Rows{4}));
  EXPECT_THAT(all_of(rebatched(range(5).batch(4), {2, 2}, Remainder::drop)),
              ElementsAre(Rows{0, 1}, Rows{2, 3}));
  EXPECT_THAT(all_of(rebatched(range(12).batch(4), {6})),
              ElementsAre(testing::count(0, 6), testing::count(6, 12)));
  EXPECT_THAT(all_of(rebatched(range(6).batch(4), {1, 1, 1, 1, 0})),
              ElementsAre(Rows{0}, Rows{1}, Rows{2}, Rows{3}, Rows{}, Rows{4}, Rows{5}));
  EXPECT_THAT(all_of(rebatched(range(2).batch(2), {0, 1})),
              ElementsAre(Rows{}, Rows{0}, Rows{}, Rows{1}, Rows{}));
  EXPECT_THAT(all_of(rebatched(range(0).batch(2), {1, 1})), ElementsAre());
}

TEST(Rebatch, AShortStepIsCutEvenly) {
  const auto steps = [](std::int64_t rows, Rows sizes, std::size_t together) {
    const Dataset<Tensor> cut(std::make_shared<detail::RebatchStage<Tensor>>(
        range(rows).batch(4).stage(), std::move(sizes), together));
    auto all = all_of(cut);
    EXPECT_EQ(cut.cardinality(), static_cast<std::int64_t>(all.size())) << rows << " rows";
    return all;
  };
  EXPECT_THAT(steps(7, {2, 2}, 2), ElementsAre(Rows{0, 1}, Rows{2, 3}, Rows{4, 5}, Rows{6}));
  EXPECT_THAT(steps(6, {2, 2}, 2), ElementsAre(Rows{0, 1}, Rows{2, 3}, Rows{4}, Rows{5}));
  EXPECT_THAT(steps(5, {2, 2}, 2), ElementsAre(Rows{0, 1}, Rows{2, 3}, Rows{4}, Rows{}));
  // Two workers of two replicas: this one's part of a batch of 7 is 4 rows, then 3.
  EXPECT_THAT(steps(9, {2, 2, 2, 1}, 2),
              ElementsAre(Rows{0, 1}, Rows{2, 3}, Rows{4, 5}, Rows{6}, Rows{7}, Rows{8}));
  EXPECT_THAT(steps(0, {2, 2}, 2), ElementsAre());
}

TEST(Rebatch, TensorsOfABatchMustHaveAsManyRows) {
  const auto uneven = data::from_tensors(std::tuple(torch::ones({2}), torch::ones({3})));
  using T = std::tuple<Tensor, Tensor>;
  const Dataset<T> cut(std::make_shared<detail::RebatchStage<T>>(uneven.stage(), Rows{1}));
  EXPECT_THROW(cut.iterate().next(), InvalidUsage);
  const auto scalars = rebatched(range(3), {1});
  EXPECT_THAT(usage_error(Code::invalid_argument, [&] { return scalars.iterate().next(); }),
              HasSubstr("batch()"));
}

TEST(Rebatch, SlicesOfOneBatchDifferByAtMostOne) {
  const auto split = [](std::int64_t rows, int parts) {
    std::vector<std::size_t> sizes;
    const auto batch = data::from_tensors(torch::arange(rows));
    for (const Rows& part : all_of(
             Dataset<Tensor>(std::make_shared<detail::SplitStage<Tensor>>(batch.stage(), parts)))) {
      sizes.push_back(part.size());
    }
    return sizes;
  };
  EXPECT_THAT(split(4, 3), ElementsAre(2, 1, 1));
  EXPECT_THAT(split(6, 4), ElementsAre(2, 2, 1, 1));
  EXPECT_THAT(split(6, 2), ElementsAre(3, 3));
  EXPECT_THAT(split(1, 4), ElementsAre(1, 0, 0, 0));
}

TEST(Rebatch, SizesAddUpToTheGlobalBatch) {
  EXPECT_EQ(batch_sizes(4, 3, 0, 1), Rows({2, 1, 1}));
  EXPECT_EQ(batch_sizes(4, 3, 1, 1), Rows({1, 1, 2}));
  EXPECT_EQ(batch_sizes(4, 3, 2, 1), Rows({1, 2, 1}));
  for (int workers = 1; workers <= 5; ++workers) {
    for (int replicas = 1; replicas <= 4; ++replicas) {
      for (std::int64_t global = 1; global < 40; ++global) {
        for (int step = 0; step < workers; ++step) {
          std::int64_t sum = 0;
          for (int w = 0; w < workers; ++w) {
            const Rows sizes = batch_sizes(global, workers, w, replicas);
            for (int k = 0; k < replicas; ++k) {
              sum += sizes[static_cast<std::size_t>(step * replicas + k)];
            }
          }
          ASSERT_EQ(sum, global) << workers << " workers, step " << step;
        }
      }
    }
  }
}

TEST(Rebatch, Case124TheBatchSizeIsFound) {
  const auto batches = range(16).batch(4);
  const auto same = [](const Tensor& x) { return x; };
  EXPECT_EQ(known_batch_size(*batches.stage()), 4);
  EXPECT_EQ(known_batch_size(*batches.take(2).stage()), 4);
  EXPECT_EQ(known_batch_size(*batches.map(same).stage()), std::nullopt);
  EXPECT_EQ(known_batch_size(*data::zip(batches, range(8).batch(4)).stage()), 4);
  EXPECT_EQ(known_batch_size(*data::zip(batches, range(8).batch(8)).stage()), std::nullopt);
  EXPECT_EQ(known_batch_size(*batches.shuffle(2, Seed{1}).repeat().prefetch(1).stage()), 4);
  EXPECT_EQ(known_batch_size(*batches.concatenate(range(4).batch(4)).stage()), 4);
  EXPECT_EQ(known_batch_size(*range(8).stage()), std::nullopt);
  EXPECT_EQ(known_batch_size(*range(8).map(same).batch(4, Remainder::drop).cache().stage()), 4);
  EXPECT_EQ(known_batch_size(*data::from_tensors(torch::zeros({6, 2})).stage()), 6);
}

TEST(AutoShard, WhatCannotBeIsRefused) {
  const auto stage = range(4).stage();
  EXPECT_THAT(usage_error(Code::invalid_argument,
                          [&] { choose_sharding(stage, 2, 2, AutoShardPolicy::data); }),
              HasSubstr("worker 2 of 2"));
  EXPECT_THROW(choose_sharding(stage, 0, 0, AutoShardPolicy::data), InvalidUsage);
  EXPECT_THROW(choose_sharding(stage, 2, -1, AutoShardPolicy::data), InvalidUsage);
  EXPECT_THROW(choose_sharding(stage, 2, 0, static_cast<AutoShardPolicy>(7)), InvalidUsage);
  EXPECT_THAT(
      usage_error(Code::not_found, [&] { choose_sharding(stage, 2, 0, AutoShardPolicy::file); }),
      HasSubstr("range(0, 4, 1) reads no files"));
}

TEST(AutoShard, WithoutFilesAutomaticMeansData) {
  const auto stage = range(4).stage();
  EXPECT_EQ(choose_sharding(stage, 2, 0, AutoShardPolicy::automatic).by, Sharding::data);
  EXPECT_EQ(choose_sharding(stage, 1, 0, AutoShardPolicy::automatic).by, Sharding::none);
  EXPECT_EQ(choose_sharding(stage, 2, 0, AutoShardPolicy::off).by, Sharding::none);
}

TEST(AutoShard, ThePolicyIsThatOfTheDatasetsOptions) {
  const auto off = range(4).with_options({.auto_shard_policy = AutoShardPolicy::off});
  EXPECT_EQ(detail::auto_shard_policy(*off.batch(2).stage()), AutoShardPolicy::off);
  EXPECT_EQ(detail::auto_shard_policy(*range(4).stage()), AutoShardPolicy::automatic);
  EXPECT_EQ(detail::auto_shard_policy(
                *off.with_options({.auto_shard_policy = AutoShardPolicy::data}).stage()),
            AutoShardPolicy::data);
}

TEST(InputContextTest, Case127) {
  const InputContext context{2, 1, 6};
  EXPECT_EQ(context.get_per_replica_batch_size(12), 2);
  EXPECT_THAT(
      usage_error(Code::invalid_argument, [&] { return context.get_per_replica_batch_size(13); }),
      HasSubstr("13"));
  std::ostringstream text;
  text << context;
  EXPECT_EQ(text.str(), "tf.distribute.InputContext(input pipeline id 1, total: 2)");
}

}  // namespace
}  // namespace lockstep
