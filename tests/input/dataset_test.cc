#include "lockstep/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <thread>

#include "tests/input/helpers.h"

namespace lockstep {
namespace {

using data::range;
using testing::all_of;
using testing::count;
using ::testing::ElementsAre;
using testing::error_of;
using testing::flat;
using ::testing::HasSubstr;
using testing::numbers_of;
using testing::Rows;

struct Example {
  Tensor image, label;
  static auto lockstep_members() { return std::tuple(&Example::image, &Example::label); }
};

// --- Sources. -----------------------------------------------------------------------------------

TEST(Dataset, RangesCountUpAndDown) {
  EXPECT_EQ(flat(range(4)), Rows({0, 1, 2, 3}));
  EXPECT_EQ(flat(range(1, 8, 3)), Rows({1, 4, 7}));
  EXPECT_EQ(flat(range(3, 0, -1)), Rows({3, 2, 1}));
  EXPECT_EQ(flat(range(3, 3)), Rows());
  EXPECT_THROW(range(0, 1, 0), InvalidUsage);
  EXPECT_EQ(range(1, 8, 3).cardinality(), 3);
}

TEST(Dataset, IsIteratedAnewEachTime) {
  const auto dataset = range(3);
  EXPECT_EQ(flat(dataset), flat(dataset));
}

TEST(Dataset, SlicesOfAStruct) {
  const auto dataset =
      data::from_tensor_slices(Example{torch::arange(6).view({3, 2}), torch::arange(3)});
  std::vector<Rows> images;
  Rows labels;
  for (const Example& example : dataset) {
    images.push_back(numbers_of(example.image));
    labels.push_back(example.label.item<std::int64_t>());
  }
  EXPECT_THAT(images, ElementsAre(Rows{0, 1}, Rows{2, 3}, Rows{4, 5}));
  EXPECT_EQ(labels, Rows({0, 1, 2}));
  EXPECT_EQ(dataset.cardinality(), 3);
  EXPECT_THAT(error_of<InvalidUsage>(
                  [] { data::from_tensor_slices(std::tuple(torch::ones({2}), torch::ones({3}))); }),
              HasSubstr("2 and 3 rows"));
  EXPECT_THROW(data::from_tensor_slices(torch::ones({})), InvalidUsage);
}

TEST(Dataset, TensorsAreOneElement) {
  EXPECT_THAT(all_of(data::from_tensors(torch::arange(3))), ElementsAre(Rows{0, 1, 2}));
}

TEST(Dataset, AGeneratorStartsAnewForEachIteration) {
  const auto dataset = data::generator([] {
    return [i = std::int64_t{0}]() mutable {
      return i < 3 ? std::optional(torch::full({}, i++)) : std::nullopt;
    };
  });
  EXPECT_EQ(flat(dataset), Rows({0, 1, 2}));
  EXPECT_EQ(flat(dataset), Rows({0, 1, 2}));
  EXPECT_EQ(dataset.cardinality(), kUnknownCardinality);
}

// --- Each element. ------------------------------------------------------------------------------

TEST(Dataset, MapChangesValuesAndTypes) {
  EXPECT_EQ(flat(range(4).map([](const Tensor& x) { return x * x; })), Rows({0, 1, 4, 9}));
  std::vector<std::string> texts;
  for (const std::string& text :
       range(2).map([](const Tensor& x) { return std::to_string(x.item<std::int64_t>()); })) {
    texts.push_back(text);
  }
  EXPECT_THAT(texts, ElementsAre("0", "1"));
}

TEST(Dataset, AParallelMapKeepsTheOrder) {
  const auto slow_first = [](const Tensor& x) {
    if (x.item<std::int64_t>() % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    return x * 2;
  };
  Rows expected;
  for (int i = 0; i < 50; ++i) expected.push_back(2 * i);
  EXPECT_EQ(flat(range(50).map(slow_first, Parallel{4})), expected);
  EXPECT_THROW(range(1).map(slow_first, Parallel{0}), InvalidUsage);
}

TEST(Dataset, AnExceptionComesOutAtItsPlace) {
  const auto odd = [](const Tensor& x) {
    if (x.item<std::int64_t>() == 2) throw std::out_of_range("two");
    return x;
  };
  for (const int parallel : {1, 3}) {
    for (const bool ahead : {false, true}) {
      auto dataset = range(4).map(odd, Parallel{parallel});
      if (ahead) dataset = dataset.prefetch(3);
      auto iterator = dataset.iterate();
      EXPECT_EQ(iterator.next()->item<std::int64_t>(), 0);
      EXPECT_EQ(iterator.next()->item<std::int64_t>(), 1);
      EXPECT_THROW(iterator.next(), std::out_of_range);
      EXPECT_EQ(iterator.next()->item<std::int64_t>(), 3);
      EXPECT_FALSE(iterator.next());
      EXPECT_FALSE(iterator.next());
    }
  }
  // A batch keeps the rows that it had.
  auto batches = range(4).map(odd).batch(3).iterate();
  EXPECT_THROW(batches.next(), std::out_of_range);
  EXPECT_EQ(numbers_of(*batches.next()), Rows({0, 1, 3}));
}

TEST(Dataset, AnErrorMovesNothingToAnotherPlace) {
  const auto bad = [](std::int64_t at) {
    return range(10).map([at](const Tensor& x) {
      if (x.item<std::int64_t>() == at) throw std::out_of_range("bad");
      return x;
    });
  };
  const auto seen = [](const auto& dataset) {
    Rows all;
    auto iterator = dataset.iterate();
    for (;;) {
      try {
        const auto element = iterator.next();
        if (!element) return all;
        all.push_back(element->template item<std::int64_t>());
      } catch (const std::out_of_range&) {
        all.push_back(-1);
      }
    }
  };
  EXPECT_EQ(seen(bad(3).shard(2, 1)), Rows({1, -1, 5, 7, 9}));
  EXPECT_EQ(seen(bad(1).take(3)), Rows({0, -1, 2}));
  const auto sum = [](const auto& pair) { return std::get<0>(pair) - std::get<1>(pair); };
  EXPECT_EQ(seen(data::zip(bad(2), range(10)).map(sum).take(4)), Rows({0, 0, -1, 0}));
  const auto cached = bad(8).skip(7).cache();
  EXPECT_EQ(seen(cached), Rows({7, -1, 9}));
  EXPECT_EQ(seen(cached), Rows({7, -1, 9})) << "a pass with a hole is not kept";
  // A position behind it is the same place.
  const auto shuffled = bad(4).shuffle(3, Seed{2});
  const Rows whole = seen(shuffled);
  auto iterator = shuffled.iterate_from({0, 8, detail::fingerprint(*shuffled.stage())});
  EXPECT_EQ(iterator.next()->item<std::int64_t>(), whole[8]);
}

TEST(Dataset, MapsOfOneBatchMustHaveTheSameKeys) {
  using Map = std::map<std::string, Tensor>;
  const auto dataset = data::from_list<Map>({{{"x", torch::ones({})}, {"y", torch::ones({})}},
                                             {{"x", torch::ones({})}, {"z", torch::ones({})}}});
  EXPECT_THAT(error_of<DataError>([&] { return dataset.batch(2).iterate().next(); }),
              HasSubstr("different keys"));
  EXPECT_TRUE(dataset.batch(1).iterate().next());
}

TEST(Dataset, FilterEnumerateFlatMap) {
  const auto even = [](const Tensor& x) { return x.item<std::int64_t>() % 2 == 0; };
  EXPECT_EQ(flat(range(7).filter(even)), Rows({0, 2, 4, 6}));
  Rows indices;
  for (const auto& [index, value] : range(10, 13).enumerate(5)) {
    indices.push_back(index.item<std::int64_t>());
    indices.push_back(value.item<std::int64_t>());
  }
  EXPECT_EQ(indices, Rows({5, 10, 6, 11, 7, 12}));
  EXPECT_EQ(flat(range(4).flat_map([](const Tensor& x) { return range(x.item<std::int64_t>()); })),
            Rows({0, 0, 1, 0, 1, 2}));
}

TEST(Dataset, InterleaveTakesTurns) {
  const auto six_times = [](const Tensor& x) { return data::from_tensors(x).repeat(6); };
  EXPECT_EQ(flat(range(1, 6).interleave(six_times, {.cycle_length = 2, .block_length = 4})),
            Rows({1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 2, 2, 3, 3, 3,
                  3, 4, 4, 4, 4, 3, 3, 4, 4, 5, 5, 5, 5, 5, 5}));
  EXPECT_EQ(flat(range(0).interleave(six_times)), Rows());
  EXPECT_THROW(range(1).interleave(six_times, {.cycle_length = 0}), InvalidUsage);
}

// --- Order and number. --------------------------------------------------------------------------

TEST(Dataset, ShuffleIsAPermutationThatItsSeedDecides) {
  const auto shuffled = range(100).shuffle(10, Seed{3});
  const Rows first = flat(shuffled);
  EXPECT_NE(first, count(0, 100));
  EXPECT_THAT(first, ::testing::UnorderedElementsAreArray(count(0, 100)));
  EXPECT_NE(flat(shuffled), first) << "another order in the next pass";
  EXPECT_EQ(flat(range(100).shuffle(10, Seed{3})), first);
  EXPECT_NE(flat(range(100).shuffle(10, Seed{4})), first);
  const auto same = range(100).shuffle(10, Seed{3}, Reshuffle::never);
  EXPECT_EQ(flat(same), flat(same));
  EXPECT_EQ(flat(range(9).shuffle(1, Seed{1})), count(0, 9));
  // An element cannot come earlier than the buffer allows.
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_LT(first[i], static_cast<std::int64_t>(i) + 10);
  }
  EXPECT_THROW(range(1).shuffle(0, Seed{1}), InvalidUsage);
}

TEST(Dataset, ShuffledRoundsOfRepeatDiffer) {
  const Rows twice = flat(range(50).shuffle(50, Seed{1}).repeat(2));
  ASSERT_EQ(twice.size(), 100U);
  EXPECT_NE(Rows(twice.begin(), twice.begin() + 50), Rows(twice.begin() + 50, twice.end()));
}

TEST(Dataset, RepeatTakeSkipShardConcatenate) {
  EXPECT_EQ(flat(range(2).repeat(2)), Rows({0, 1, 0, 1}));
  EXPECT_EQ(flat(range(3).repeat().take(7)), Rows({0, 1, 2, 0, 1, 2, 0}));
  EXPECT_EQ(flat(range(0).repeat()), Rows()) << "nothing for ever is nothing";
  EXPECT_EQ(flat(range(9).skip(7)), Rows({7, 8}));
  EXPECT_EQ(flat(range(2).skip(7)), Rows());
  EXPECT_EQ(flat(range(10).shard(3, 1)), Rows({1, 4, 7}));
  EXPECT_EQ(flat(range(2).concatenate(range(5, 7))), Rows({0, 1, 5, 6}));
  EXPECT_EQ(flat(range(5).take(kInfinite)), count(0, 5));
  EXPECT_THROW(range(1).shard(2, 2), InvalidUsage);
  EXPECT_THROW(range(1).shard(0, 0), InvalidUsage);
  EXPECT_THROW(range(1).take(-2), InvalidUsage);
}

TEST(Dataset, CardinalityIsKnownWhereItCanBe) {
  EXPECT_EQ(range(10).shard(3, 1).cardinality(), 3);
  EXPECT_EQ(range(10).batch(4).cardinality(), 3);
  EXPECT_EQ(range(10).batch(4, Remainder::drop).cardinality(), 2);
  EXPECT_EQ(range(10).repeat().cardinality(), kInfinite);
  EXPECT_EQ(range(10).repeat().take(5).cardinality(), 5);
  EXPECT_EQ(range(10).filter([](const Tensor&) { return true; }).cardinality(),
            kUnknownCardinality);
  EXPECT_EQ(data::zip(range(10), range(3).repeat()).cardinality(), 10);
  EXPECT_EQ(range(3).concatenate(range(4)).cardinality(), 7);
}

TEST(Dataset, AssertCardinalityHoldsOrSays) {
  EXPECT_EQ(flat(range(3).assert_cardinality(3)), count(0, 3));
  EXPECT_THAT(error_of<DataError>([] { flat(range(3).assert_cardinality(4)); }),
              HasSubstr("4 elements were promised, but there are 3"));
  EXPECT_THAT(error_of<DataError>([] { flat(range(3).assert_cardinality(2)); }),
              HasSubstr("at least 3"));
  try {
    flat(range(3).assert_cardinality(2));
  } catch (const DataError& error) {
    EXPECT_EQ(error.code(), Code::data_loss);
  }
}

// --- Batches. -----------------------------------------------------------------------------------

TEST(Dataset, BatchesHaveRows) {
  EXPECT_THAT(all_of(range(5).batch(2)), ElementsAre(Rows{0, 1}, Rows{2, 3}, Rows{4}));
  EXPECT_THAT(all_of(range(5).batch(2, Remainder::drop)), ElementsAre(Rows{0, 1}, Rows{2, 3}));
  EXPECT_THAT(all_of(range(5).batch(GlobalBatch{4})), ElementsAre(Rows{0, 1, 2, 3}, Rows{4}));
  EXPECT_EQ(flat(range(5).batch(2).unbatch()), count(0, 5));
  EXPECT_THROW(range(5).batch(0), InvalidUsage);
}

TEST(Dataset, ABatchOfDifferentShapesNamesThem) {
  const auto growing = range(1, 3).map(
      [](const Tensor& x) { return torch::full({x.item<std::int64_t>()}, 7, torch::kLong); });
  EXPECT_THAT(error_of<DataError>([&] { all_of(growing.batch(2)); }),
              ::testing::AllOf(HasSubstr("Long[1] in row 0"), HasSubstr("Long[2] in row 1"),
                               HasSubstr("padded_batch")));
  const auto padded = growing.padded_batch(2, {.shapes = {}, .value = -1});
  EXPECT_THAT(all_of(padded), ElementsAre(Rows{7, -1, 7, 7}));
  EXPECT_THAT(all_of(growing.padded_batch(2, {.shapes = {{3}}})),
              ElementsAre(Rows{7, 0, 0, 7, 7, 0}));
  EXPECT_THROW(all_of(growing.padded_batch(2, {.shapes = {{1}}})), DataError);
}

TEST(Dataset, ZipEndsWithTheShortest) {
  Rows sums;
  for (const auto& [a, b] : data::zip(range(3), range(10, 20))) {
    sums.push_back((a + b).item<std::int64_t>());
  }
  EXPECT_EQ(sums, Rows({10, 12, 14}));
}

TEST(Dataset, ElementSpec) {
  const auto slices = data::from_tensor_slices(torch::zeros({10, 28, 28}));
  EXPECT_THAT(slices.element_spec(), ElementsAre(TensorSpec{at::kFloat, {28, 28}}));
  EXPECT_THAT(slices.batch(4).element_spec(),
              ElementsAre(TensorSpec{at::kFloat, {kUnknownLength, 28, 28}}));
  EXPECT_THAT(slices.batch(4, Remainder::drop).element_spec(),
              ElementsAre(TensorSpec{at::kFloat, {4, 28, 28}}));
  EXPECT_THAT(slices.map([](const Tensor& x) { return x.sum(0).to(torch::kDouble); })
                  .batch(2)
                  .element_spec(),
              ElementsAre(TensorSpec{at::kDouble, {kUnknownLength, 28}}));
  EXPECT_EQ(to_string(slices.batch(4).element_spec()[0]), "Float[?, 28, 28]");
}

// --- How it is run. -----------------------------------------------------------------------------

TEST(Dataset, WhatIsCachedDoesNotDependOnThePass) {
  const auto make = [] { return range(10).shuffle(10, Seed{1}).cache(); };
  const auto dataset = make();
  const Rows first = flat(dataset);
  EXPECT_EQ(flat(dataset), first);
  auto rest = make().iterate_from({1, 3, detail::fingerprint(*dataset.stage())});
  EXPECT_EQ(rest.next()->item<std::int64_t>(), first[3]);
}

TEST(Dataset, CacheMakesElementsOnce) {
  auto made = std::make_shared<int>(0);
  const auto dataset = range(4)
                           .map([made](const Tensor& x) {
                             ++*made;
                             return x;
                           })
                           .cache();
  dataset.iterate().next();  // a pass that is given up leaves nothing
  EXPECT_EQ(flat(dataset), count(0, 4));
  EXPECT_EQ(flat(dataset), count(0, 4));
  EXPECT_EQ(*made, 5);
}

TEST(Dataset, CacheGivesCopies) {
  const auto dataset = data::from_tensor_slices(torch::arange(4)).cache().batch(1).cache();
  const auto change = [&](std::int64_t factor) {
    Rows seen;
    for (const Tensor& element : dataset) {
      seen.push_back(element.item<std::int64_t>());
      element.mul_(factor);  // as augmentation does
    }
    return seen;
  };
  EXPECT_EQ(change(10), count(0, 4));
  EXPECT_EQ(change(0), count(0, 4)) << "the pass that was kept was changed while it was given";
  EXPECT_EQ(change(1), count(0, 4)) << "what came from memory was changed";
}

TEST(Dataset, SlicesLieInTheMemoryTheyAreMadeFromAndBatchesDoNot) {
  const Tensor all = torch::zeros({2});
  const auto rows = data::from_tensor_slices(all);
  for (const Tensor& batch : rows.batch(1)) batch.add_(1);
  EXPECT_EQ(all.sum().item<double>(), 0);
  for (const Tensor& row : rows) row.add_(1);
  EXPECT_EQ(all.sum().item<double>(), 2);
  for (const Tensor& row : data::from_tensors(all).unbatch()) row.add_(1);
  EXPECT_EQ(all.sum().item<double>(), 4);
}

/// Beside texts, in containers, and in structs that name their members.
TEST(Dataset, CacheGivesCopiesOfTensorsAmongOtherThings) {
  struct Named {
    std::string name;
    Tensor value;
    static auto lockstep_members() { return std::tuple(&Named::name, &Named::value); }
  };
  using Element = std::tuple<std::string, std::vector<Tensor>, Named>;
  const auto dataset = range(3)
                           .map([](const Tensor& x) {
                             return Element("x", {x, x + 10}, {"y", x + 20});
                           })
                           .cache();
  for (int pass = 0; pass < 3; ++pass) {
    std::int64_t i = 0;
    for (const auto& [text, tensors, named] : dataset) {
      EXPECT_EQ(text + named.name, "xy");
      EXPECT_EQ(tensors[0].item<std::int64_t>(), i) << pass;
      EXPECT_EQ(tensors[1].item<std::int64_t>(), i + 10) << pass;
      EXPECT_EQ(named.value.item<std::int64_t>(), i + 20) << pass;
      for (const Tensor& each : {tensors[0], tensors[1], named.value}) each.zero_();
      ++i;
    }
    EXPECT_EQ(i, 3);
  }
}

int threads_of_this_process() {
  int threads = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    static_cast<void>(entry);
    ++threads;
  }
  return threads;
}

TEST(Dataset, PrefetchWorksAheadAndNoFurther) {
  auto made = std::make_shared<std::atomic<int>>(0);
  const auto dataset = range(100)
                           .map([made](const Tensor& x) {
                             made->fetch_add(1);
                             return x;
                           })
                           .prefetch(3);
  const int before = threads_of_this_process();
  {
    auto iterator = dataset.iterate();
    EXPECT_EQ(iterator.next()->item<std::int64_t>(), 0);
    for (int i = 0; i < 1000 && made->load() < 4; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(made->load(), 4) << "one taken, three ahead";
  }
  EXPECT_EQ(threads_of_this_process(), before) << "a consumer that stops leaves no thread";
  EXPECT_EQ(flat(dataset), count(0, 100));
}

TEST(Dataset, ThreadsOfAPipelineKeepToTheirCore) {
  const int before = at::get_num_threads();
  const auto threads = [](const Tensor&) { return torch::tensor(at::get_num_threads()); };
  EXPECT_EQ(flat(range(3).map(threads, Parallel{2})), Rows({1, 1, 1}));
  EXPECT_EQ(flat(range(3).map(threads).prefetch(1)), Rows({1, 1, 1}));
  EXPECT_EQ(at::get_num_threads(), before) << "the caller's own are as they were";
}

// --- Positions. ---------------------------------------------------------------------------------

TEST(Dataset, APositionIsContinuedExactly) {
  const auto plus_one = [](const Tensor& x) { return x + 1; };
  const auto make = [&] {
    return range(40)
        .filter([](const Tensor& x) { return x.item<std::int64_t>() % 3 != 0; })
        .shuffle(7, Seed{5})
        .map(plus_one, Parallel{3})
        .repeat(2)
        .batch(4)
        .prefetch(2);
  };
  const auto dataset = make();
  flat(dataset);  // one whole pass; the next one is another
  std::vector<Rows> whole;
  std::vector<std::string> positions;
  auto iterator = dataset.iterate();
  for (;;) {
    positions.push_back(iterator.position().to_string());
    const auto batch = iterator.next();
    if (!batch) break;
    whole.push_back(numbers_of(*batch));
  }
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const auto again = make();  // as another process would
    auto rest = again.iterate_from(DatasetPosition::parse(positions[i]));
    for (std::size_t k = i; k < whole.size(); ++k) {
      ASSERT_EQ(numbers_of(rest.next().value()), whole[k]) << "from " << positions[i];
    }
    EXPECT_FALSE(rest.next());
  }
}

TEST(Dataset, APositionOfAnotherPipelineIsRefused) {
  const auto position = range(5).batch(2).iterate().position();
  EXPECT_THAT(
      error_of<InvalidUsage>([&] { return range(5).batch(3).iterate_from(position).next(); }),
      HasSubstr("another dataset"));
  EXPECT_THROW(DatasetPosition::parse("pass 1"), ConfigError);
  auto beyond = position;
  beyond.delivered = 9;
  EXPECT_THAT(error_of<DataError>([&] { return range(5).batch(2).iterate_from(beyond).next(); }),
              HasSubstr("only 3"));
}

TEST(Dataset, SkippingIsTheSameAsReading) {
  const auto keep = [](const Tensor& x) { return x.item<std::int64_t>() != 5; };
  const auto check = [](const auto& dataset) {
    const auto whole = all_of(dataset);
    for (std::size_t n = 0; n <= whole.size() + 1; ++n) {
      for (const auto how : {detail::Skip::cheaply, detail::Skip::exactly}) {
        auto stream = dataset.stage()->open({});
        EXPECT_EQ(stream->skip(n, how).places, std::min(n, whole.size()));
        for (std::size_t k = n; k < whole.size(); ++k) {
          ASSERT_EQ(numbers_of(stream->next().value()), whole[k]) << dataset.explain() << n;
        }
        EXPECT_FALSE(stream->next());
      }
    }
  };
  check(range(9));
  check(range(9).filter(keep));
  check(range(9).shard(3, 2));
  check(range(9).skip(2).take(4));
  check(range(3).repeat(4));
  check(range(9).batch(2));
  check(range(9).batch(2, Remainder::drop));
  check(range(9).batch(4).unbatch());
  check(range(3).concatenate(range(4)));
  check(range(9).cache());
  check(range(9).prefetch(2));
  check(range(9).map([](const Tensor& x) { return x; }, Parallel{2}));
}

TEST(Dataset, ExplainShowsThePipeline) {
  EXPECT_EQ(
      data::zip(range(4).shuffle(4, Seed{1}), range(4))
          .map([](const auto& pair) { return std::get<0>(pair); })
          .batch(GlobalBatch{2})
          .explain(),
      "batch(2 global)\nmap\nzip\n  shuffle(4, seed 1)\n  range(0, 4, 1)\n  range(0, 4, 1)\n");
}

}  // namespace
}  // namespace lockstep
