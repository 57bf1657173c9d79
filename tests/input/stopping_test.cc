// An iterator that is destroyed while its threads are at work: they end with the element at hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/gate.h"
#include "lockstep/distributed_dataset.h"
#include "tests/input/files_to_read.h"
#include "tests/input/steps.h"

namespace lockstep {
namespace {

using data::range;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(10);

/// A function of a pipeline that knows how often it was called, and can end a search.
class Calls {
 public:
  /// True for so many calls: whoever looks for more elements searches for ever.
  [[nodiscard]] auto first(std::int64_t found) {
    return [this, found](const auto&) { return ++made_ <= found || over_.load(); };
  }
  [[nodiscard]] auto identity() {
    return [this](const auto& element) {
      ++made_;
      return element;
    };
  }
  [[nodiscard]] std::int64_t made() const { return made_.load(); }
  /// Waits until there have been more calls than `count`; polls, because the function must stay as
  /// quick as a user's.
  void wait_for(std::int64_t count) {
    const auto end = steady_clock::now() + kPatience;
    while (made_.load() <= count && steady_clock::now() < end) std::this_thread::yield();
    EXPECT_GT(made_.load(), count);
  }
  /// How long destroying it takes. A search that does not end by itself is ended after kPatience.
  template <class Iterator>
  steady_clock::duration time_to_destroy(std::unique_ptr<Iterator> iterator) {
    Gate gate;
    std::atomic<bool> gone = false;
    const auto start = steady_clock::now();
    steady_clock::time_point end;
    {
      const std::jthread destroyer([&] {
        iterator.reset();
        end = steady_clock::now();
        gone.store(true);
        gate.notify();
      });
      if (!gate.wait([&] { return gone.load(); }, Deadline::after(kPatience))) {
        ADD_FAILURE() << "the iterator is not destroyed after 10 s";
        over_.store(true);
      }
    }
    return end - start;
  }

 private:
  std::atomic<std::int64_t> made_ = 0;
  std::atomic<bool> over_ = false;
};

/// The best of a few: the machine may be busy with something else.
template <class Measure>
void expect_at_once(const Measure& measure) {
  auto best = steady_clock::duration::max();
  for (int attempt = 0; attempt < 5 && best > milliseconds(100); ++attempt) {
    best = std::min(best, measure());
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_LT(best, milliseconds(100));
}

/// The iterator of what `make` makes of a search for ever, which is destroyed during the search.
/// `found`: elements that are needed for the first one to come out.
template <class Make>
void expect_search_ends(std::int64_t found, const Make& make) {
  expect_at_once([&] {
    Calls calls;
    const auto dataset = make(range(10).repeat().filter(calls.first(found)));
    using Element = typename std::remove_cvref_t<decltype(dataset)>::value_type;
    auto iterator = std::make_unique<DatasetIterator<Element>>(dataset.iterate());
    EXPECT_TRUE(iterator->next());
    calls.wait_for(1000);
    return calls.time_to_destroy(std::move(iterator));
  });
}

TEST(Stopping, EndsASearchForEver) {
  expect_search_ends(1, [](auto search) { return search.prefetch(1); });
}

TEST(Stopping, EndsASearchBehindOtherThreads) {
  expect_search_ends(
      1, [](auto search) { return search.prefetch(1).shuffle(1, Seed{1}).prefetch(1); });
  // Two calls at a time work on four elements ahead.
  expect_search_ends(4, [](auto search) {
    return search.prefetch(1).map([](const Tensor& x) { return x; }, Parallel{2}).prefetch(1);
  });
  expect_search_ends(1, [](auto search) {
    return range(3).flat_map([search](const Tensor&) { return search.prefetch(1); }).prefetch(1);
  });
}

TEST(Stopping, EndsPlacesThatAreSkippedForEver) {
  Calls calls;
  const auto search = range(10).repeat().filter(calls.first(1));
  const auto dataset = range(1).concatenate(search.skip(1'000'000'000)).prefetch(2);
  auto iterator = std::make_unique<DatasetIterator<Tensor>>(dataset.iterate());
  EXPECT_TRUE(iterator->next());
  calls.wait_for(1000);
  EXPECT_LT(calls.time_to_destroy(std::move(iterator)), kPatience);
}

TEST(Stopping, EndsWithinALargeBatch) {
  constexpr std::int64_t rows = 200'000;
  Calls calls;
  const auto dataset = range(4 * rows).map(calls.identity()).batch(rows).prefetch(1);
  auto iterator = std::make_unique<DatasetIterator<Tensor>>(dataset.iterate());
  EXPECT_TRUE(iterator->next());
  calls.wait_for(rows);
  calls.time_to_destroy(std::move(iterator));
  EXPECT_LT(calls.made(), 2 * rows);
}

TEST(Stopping, TakesNoLongerThanTheUsersOwnFunction) {
  constexpr auto kOneCall = milliseconds(10);
  expect_at_once([&] {
    Calls calls;
    const auto slow = [&, count = calls.identity()](const Tensor& element) {
      const auto end = steady_clock::now() + kOneCall;
      while (steady_clock::now() < end) std::this_thread::yield();
      return count(element);
    };
    // A batch takes a second. The first comes without the function.
    const auto dataset =
        range(1).repeat(100).concatenate(range(1'000'000).map(slow)).batch(100).prefetch(2);
    auto iterator = std::make_unique<DatasetIterator<Tensor>>(dataset.iterate());
    EXPECT_TRUE(iterator->next());
    calls.wait_for(2);
    return calls.time_to_destroy(std::move(iterator));
  });
}

using StoppingFiles = testing::FilesToRead;

/// All records of the second file are corrupt and are left out. That takes a second.
TEST_F(StoppingFiles, EndsASearchForARecordThatIsNotCorrupt) {
  constexpr int kCorrupt = 2'000'000;
  write_records("a", {"r0"});
  write_records("b", {"r1"});
  damage(path("b"), 0, 2);
  const std::string corrupt = format::read_file(path("b"));
  std::string content;
  content.reserve(kCorrupt * corrupt.size());
  for (int i = 0; i < kCorrupt; ++i) content += corrupt;
  write("b", content);
  expect_at_once([&] {
    Calls calls;
    const auto names = data::files({path("a"), path("b")}).map(calls.identity());
    const auto dataset = data::tfrecord(names, {.on_corrupt = CorruptRecords::skip}).prefetch(2);
    auto iterator = std::make_unique<DatasetIterator<std::string>>(dataset.iterate());
    EXPECT_EQ(iterator->next(), "r0");
    calls.wait_for(1);
    return calls.time_to_destroy(std::move(iterator));
  });
}

TEST_F(StoppingFiles, EndsARead) {
  write_records("a", {"r0", "r1"});
  Calls calls;
  const auto dataset =
      data::tfrecord(path("a")).repeat().filter(calls.first(1)).cache().prefetch(1);
  auto iterator = std::make_unique<DatasetIterator<std::string>>(dataset.iterate());
  EXPECT_EQ(iterator->next(), "r0");
  calls.wait_for(100);
  EXPECT_LT(calls.time_to_destroy(std::move(iterator)), kPatience);
}

TEST_F(StoppingFiles, ACacheDoesNotTakeAStoppedPassForAWholeOne) {
  constexpr std::int64_t rows = 100'000;
  Calls calls;
  const auto dataset = range(rows).map(calls.identity()).cache().batch(rows / 2).prefetch(1);
  {
    auto iterator = std::make_unique<DatasetIterator<Tensor>>(dataset.iterate());
    EXPECT_TRUE(iterator->next());
    calls.wait_for(rows / 2);
    calls.time_to_destroy(std::move(iterator));
  }
  std::int64_t all = 0;
  for (const Tensor& batch : dataset) all += batch.size(0);
  EXPECT_EQ(all, rows);
}

using StoppingReplicas = testing::TwoReplicas;

TEST_F(StoppingReplicas, EndsASearchForTheFirstStep) {
  expect_at_once([&] {
    Calls calls;
    const auto dataset =
        strategy.distribute(range(10).repeat().filter(calls.first(1)).batch(GlobalBatch{4}));
    auto iterator = dataset.iterate();
    calls.wait_for(1000);
    return calls.time_to_destroy(std::move(iterator));
  });
}

}  // namespace
}  // namespace lockstep
