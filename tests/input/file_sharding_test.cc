#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <set>

#include "lockstep/readers.h"
#include "lockstep/testing.h"
#include "tests/input/helpers.h"
#include "tests/input/workers.h"
#include "tests/sys/temporary_directory.h"

namespace lockstep {
namespace {

using detail::choose_sharding;
using detail::Sharding;
using testing::count;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::on_workers;
using testing::Rows;
using testing::run_workers;

/// Files f0, f1, ... with records "0", "1", ...: file i has the i-th `each` of them.
class FileSharding : public ::testing::Test {
 protected:
  std::vector<std::string> write(int files, int each) {
    std::vector<std::string> names;
    for (int i = 0; i < files; ++i) {
      names.push_back(directory_.path() + "/f" + std::to_string(i));
      RecordWriter writer(names.back());
      for (int k = 0; k < each; ++k) writer.write(std::to_string(i * each + k));
      writer.close();
    }
    return names;
  }

 private:
  TemporaryDirectory directory_;
};

Tensor number(const std::string& record) { return torch::tensor(std::int64_t{std::stoll(record)}); }

Dataset<Tensor> numbers(const data::Files& files) { return data::tfrecord(files).map(number); }

Rows all_numbers(const detail::StagePtr& stage) {
  return testing::flat(Dataset<Tensor>(detail::as_stage_of<Tensor>(stage)));
}

TEST_F(FileSharding, Case126ByFileByDataAndNotAtAll) {
  const auto dataset = numbers(write(10, 10));
  const auto by_file = choose_sharding(dataset.stage(), 5, 3, AutoShardPolicy::file);
  EXPECT_EQ(by_file.by, Sharding::files);
  Rows expected = count(30, 40);
  for (const std::int64_t n : count(80, 90)) expected.push_back(n);
  EXPECT_EQ(all_numbers(by_file.stage), expected) << "files 3 and 8";
  EXPECT_EQ(choose_sharding(dataset.stage(), 5, 3, AutoShardPolicy::automatic).by, Sharding::files);
  const Rows by_data = all_numbers(dataset.stage()->sharded(5, 0));
  EXPECT_EQ(by_data.size(), 20U) << "records 0 and 5 of every file";
  EXPECT_EQ(Rows(by_data.begin(), by_data.begin() + 4), Rows({0, 5, 10, 15}));
  const auto off = choose_sharding(dataset.stage(), 5, 3, AutoShardPolicy::off);
  EXPECT_EQ(all_numbers(off.stage).size(), 100U);
}

TEST_F(FileSharding, FewerFilesThanWorkers) {
  const auto dataset = numbers(write(2, 3));
  for (const int worker : {0, 1, 2}) {
    try {
      choose_sharding(dataset.stage(), 3, worker, AutoShardPolicy::file);
      FAIL() << "worker " << worker << " went on";
    } catch (const InvalidUsage& error) {
      EXPECT_THAT(error.what(), ::testing::AllOf(HasSubstr("2 files for 3 workers"),
                                                 HasSubstr("AutoShardPolicy::data")));
    }
  }
  EXPECT_EQ(choose_sharding(dataset.stage(), 3, 0, AutoShardPolicy::automatic).by, Sharding::data);
}

TEST_F(FileSharding, AStageThatNobodyKnowsMeansData) {
  class Opaque final : public detail::Transform<Opaque, Tensor, Tensor> {
   public:
    using Transform::Transform;
    [[nodiscard]] Role role() const noexcept override { return Role::opaque; }
    [[nodiscard]] std::string describe() const override { return "something else"; }
    [[nodiscard]] detail::StreamPtr<Tensor> open(const detail::Opening& opening) const override {
      return input().open(opening);
    }
  };
  const detail::StagePtr stage = std::make_shared<Opaque>(numbers(write(4, 1)).stage());
  EXPECT_EQ(choose_sharding(stage, 2, 0, AutoShardPolicy::automatic).by, Sharding::data);
  EXPECT_THROW(choose_sharding(stage, 2, 0, AutoShardPolicy::file), InvalidUsage);
}

TEST_F(FileSharding, ReadersAreFoundBehindFunctionsAndOnAllSides) {
  const auto names = write(4, 2);
  const auto of_worker_1 = [](const auto& dataset) {
    const auto choice = choose_sharding(dataset.stage(), 2, 1, AutoShardPolicy::file);
    EXPECT_EQ(choice.by, Sharding::files);
    return choice.stage;
  };
  const auto interleaved = data::files(names).interleave(
      [](const std::string& file) { return numbers({file}); }, {.cycle_length = 2});
  EXPECT_EQ(all_numbers(of_worker_1(interleaved)), Rows({2, 6, 3, 7}));
  EXPECT_EQ(all_numbers(of_worker_1(numbers(names).concatenate(numbers(names)))),
            Rows({2, 3, 6, 7, 2, 3, 6, 7}));
  const auto zipped = data::zip(numbers(names), numbers(names)).map([](const auto& pair) {
    return std::get<0>(pair) + std::get<1>(pair);
  });
  EXPECT_EQ(all_numbers(of_worker_1(zipped)), Rows({4, 6, 12, 14}));
  // One side without files: not by files.
  const auto mixed = data::zip(numbers(names), data::range(8));
  EXPECT_THROW(choose_sharding(mixed.stage(), 2, 0, AutoShardPolicy::file), InvalidUsage);
  // A function that reads something else than it is given.
  const auto elsewhere =
      data::range(4).flat_map([names](const Tensor&) { return numbers({names.front()}); });
  EXPECT_EQ(choose_sharding(elsewhere.stage(), 2, 0, AutoShardPolicy::automatic).by,
            Sharding::data);
}

TEST_F(FileSharding, AShuffleOfNamesComesAfterTheDivision) {
  const auto names = write(6, 1);
  std::multiset<std::int64_t> seen;
  for (int worker = 0; worker < 3; ++worker) {
    // Each worker shuffles in its own way; no file may be lost for that.
    const auto dataset =
        numbers(data::files(names).shuffle(6, Seed{static_cast<std::uint64_t>(worker)}));
    const auto choice = choose_sharding(dataset.stage(), 3, worker, AutoShardPolicy::file);
    for (const std::int64_t n : all_numbers(choice.stage)) seen.insert(n);
    EXPECT_THAT(detail::explain(*choice.stage),
                HasSubstr("shuffle(6, seed " + std::to_string(worker) + ")\nshard(3"));
  }
  EXPECT_EQ(seen, (std::multiset<std::int64_t>{0, 1, 2, 3, 4, 5}));
}

TEST_F(FileSharding, EveryRecordIsUsedExactlyOnceByAnyNumberOfWorkers) {
  const auto names = write(9, 7);
  for (const int workers : {1, 2, 3, 5, 8}) {
    for (const int replicas : {1, 2, 3}) {
      for (const auto policy :
           {AutoShardPolicy::file, AutoShardPolicy::data, AutoShardPolicy::automatic}) {
        std::mutex mutex;
        std::multiset<std::int64_t> seen;
        std::set<std::size_t> steps;
        on_workers(workers, replicas, [&](Strategy& strategy, const InputWorkers& place) {
          const auto dataset =
              numbers(names).shuffle(5, Seed{1}).batch(GlobalBatch{10}).with_options({policy});
          Rows own;
          std::size_t taken = 0;
          std::size_t uneven = 0;  // steps, which only the last one may be
          for (const auto& batch : strategy.distribute(dataset, InputOptions{.workers = place})) {
            ++taken;
            std::vector<std::int64_t> sizes;
            for (int i = 0; i < batch.size(); ++i) {
              for (const std::int64_t n : testing::numbers_of(batch[i])) own.push_back(n);
              sizes.push_back(batch.rows(i));
            }
            const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
            if (*most - *least > 1) ++uneven;
          }
          if (policy != AutoShardPolicy::data) {
            // By files: this worker's records in the order of its own pipeline, evenly.
            std::vector<std::string> files;
            for (std::size_t i = static_cast<std::size_t>(place.index); i < names.size();
                 i += static_cast<std::size_t>(workers)) {
              files.push_back(names[i]);
            }
            EXPECT_EQ(own, testing::flat(numbers(files).shuffle(5, Seed{1})));
            EXPECT_LE(uneven, 1U);
          }
          const std::lock_guard lock(mutex);
          seen.insert(own.begin(), own.end());
          steps.insert(taken);
        });
        const Rows all = count(0, 63);
        ASSERT_EQ(seen, (std::multiset<std::int64_t>(all.begin(), all.end())))
            << workers << " workers, " << replicas << " replicas, policy "
            << static_cast<int>(policy);
        ASSERT_EQ(steps.size(), 1U) << "workers end together";
      }
    }
  }
}

// --- Workers of one strategy compare what they read. --------------------------------------------

TEST_F(FileSharding, E13FilesAreComparedWithoutTheirDirectories) {
  const auto files = write(4, 1);
  const TemporaryDirectory elsewhere;
  std::vector<std::string> copies;
  for (const std::string& file : files) {
    copies.push_back(std::filesystem::path(elsewhere.path()) /
                     std::filesystem::path(file).filename());
    std::filesystem::copy(file, copies.back());
  }
  std::mutex mutex;
  Rows seen;
  run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    const auto& own = strategy.worker_index() == 1 ? copies : files;
    for (const auto& batch : strategy.distribute(numbers(own).batch(GlobalBatch{2}))) {
      const std::lock_guard lock(mutex);
      for (const std::int64_t n : testing::numbers_of(batch[0])) seen.push_back(n);
    }
  });
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, count(0, 4));
}

TEST_F(FileSharding, E13AWorkerWithOtherFilesIsNamed) {
  const auto files = write(4, 1);
  const auto error_with = [&](const std::vector<std::string>& others, AutoShardPolicy policy) {
    return testing::error_of<Mismatch>([&] {
      run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
        const auto& own = strategy.worker_index() == 1 ? others : files;
        (void)strategy.distribute(numbers(own).batch(GlobalBatch{2}).with_options({policy}));
      });
    });
  };
  for (const auto policy : {AutoShardPolicy::automatic, AutoShardPolicy::data}) {
    EXPECT_THAT(
        error_with({files[0], files[2], files[1], files[3]}, policy),
        HasSubstr("worker 1 differs from worker 0 in entry 2 (of 5 and 5): worker 0 has file f1, "
                  "worker 1 has file f2"));
    EXPECT_THAT(error_with({files[0], files[1], files[2]}, policy),
                HasSubstr("worker 0 has file f3, worker 1 has nothing"));
  }
  EXPECT_THAT(
      error_with({files[0]}, AutoShardPolicy::automatic),
      HasSubstr(
          "worker 0 has the data divided by files, worker 1 has the data divided by elements"));
}

/// No row depends on it: each worker has files of its own.
TEST_F(FileSharding, WorkersThatDivideByFilesMayShuffleInTheirOwnWay) {
  const auto files = write(4, 3);
  std::mutex mutex;
  Rows seen;
  run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    const Seed own{static_cast<std::uint64_t>(strategy.worker_index())};
    const auto dataset =
        numbers(data::files(files, own)).shuffle(3, own).batch(GlobalBatch{4}).prefetch(1);
    const auto distributed = strategy.distribute(dataset);
    for (const auto& batch : distributed) {
      const std::lock_guard lock(mutex);
      for (const std::int64_t n : testing::numbers_of(batch[0])) seen.push_back(n);
    }
    const auto other = numbers(files).batch(GlobalBatch{2 + strategy.worker_index()});
    EXPECT_THAT(testing::error_of<Mismatch>([&] { (void)strategy.distribute(other); }),
                HasSubstr("worker 0 has stage 0 batch(2 global), worker 1 has stage 0 batch(3"));
  });
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, count(0, 12));
}

/// Each host's own files, as `off` is there for.
TEST_F(FileSharding, E13WhoReadsEverythingMayReadWhatHeHas) {
  const auto files = write(4, 1);
  run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    const auto own = numbers({files[static_cast<std::size_t>(strategy.worker_index())]});
    EXPECT_NO_THROW(
        (void)strategy.distribute(own.batch(GlobalBatch{2}).with_options({AutoShardPolicy::off})));
  });
}

}  // namespace
}  // namespace lockstep
