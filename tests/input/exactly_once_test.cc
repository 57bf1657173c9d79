// Behind an error every row that can be read is given once: none is lost, none comes twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>

#include "lockstep/readers.h"
#include "lockstep/testing.h"
#include "tests/input/files_to_read.h"
#include "tests/input/steps.h"

namespace lockstep {
namespace {

using data::range;
using ::testing::HasSubstr;
using testing::numbers_of;
using testing::Rows;
using testing::Step;
using testing::Texts;

using Numbers = std::multiset<std::int64_t>;

Numbers numbers(const Rows& rows) { return {rows.begin(), rows.end()}; }

Dataset<Tensor> records(const std::vector<std::string>& files) {
  return data::tfrecord(files).map(
      [](const std::string& record) { return torch::tensor(std::int64_t{std::stoll(record)}); });
}

/// Numbers, of which one cannot be made.
Dataset<Tensor> with_a_hole(std::int64_t count, std::int64_t at) {
  return range(count).map([at](const Tensor& x) {
    if (x.item<std::int64_t>() == at) throw DataError("a hole");
    return x;
  });
}

/// What the workers of one iteration found, of which each goes on behind errors.
struct Found {
  Numbers rows;
  std::vector<int> errors;  // by worker
  std::set<std::size_t> steps;
};

template <class Distribute>
Found found_by(int workers, int replicas, const Distribute& distribute) {
  Found found;
  found.errors.resize(static_cast<std::size_t>(workers), 0);
  std::mutex mutex;
  testing::run_workers({.workers = workers, .replicas = replicas},
                       [&](MultiWorkerMirroredStrategy& strategy) {
                         const auto dataset = distribute(strategy);
                         const auto iterator = dataset.iterate();
                         Rows own;
                         std::size_t steps = 0;
                         int errors = 0;
                         for (;;) {
                           try {
                             const auto batch = iterator->next();
                             if (!batch) break;
                             ++steps;
                             for (const Rows& part : testing::step_of(*batch)) {
                               own.insert(own.end(), part.begin(), part.end());
                             }
                           } catch (const SystemError&) {
                             ++errors;
                           } catch (const DataError&) {
                             ++errors;
                           }
                         }
                         const std::lock_guard lock(mutex);
                         found.rows.insert(own.begin(), own.end());
                         found.errors[static_cast<std::size_t>(strategy.worker_index())] = errors;
                         found.steps.insert(steps);
                       });
  return found;
}

class ExactlyOnce : public testing::FilesToRead {
 protected:
  /// "a" to "d" with the numbers 0 to 18; "b" is missing, with none.
  std::vector<std::string> with_a_missing_file() const {
    write_records("a", {"0", "1", "2", "3", "4"});
    write_records("c", {"5", "6", "7", "8", "9", "10", "11"});
    write_records("d", {"12", "13", "14", "15", "16", "17", "18"});
    return {path("a"), path("b"), path("c"), path("d")};
  }
};

TEST_F(ExactlyOnce, BehindAMissingFileOnWorkersThatDivideByData) {
  const auto files = with_a_missing_file();
  for (const int workers : {2, 3}) {
    for (const int replicas : {1, 2}) {
      for (const std::int64_t global : {4, 5}) {
        SCOPED_TRACE(::testing::Message() << workers << " workers of " << replicas
                                          << " replicas, batches of " << global);
        const Found found = found_by(workers, replicas, [&](Strategy& strategy) {
          return strategy.distribute(
              records(files).batch(GlobalBatch{global}).with_options({AutoShardPolicy::data}));
        });
        EXPECT_EQ(found.rows, numbers(testing::count(0, 19)));
        EXPECT_EQ(found.errors, std::vector<int>(static_cast<std::size_t>(workers), 1));
        EXPECT_EQ(found.steps.size(), 1U) << "workers end together";
      }
    }
  }
}

TEST_F(ExactlyOnce, BehindAMissingFileOnWorkersThatDivideByFiles) {
  const auto files = with_a_missing_file();
  const Found found = found_by(2, 2, [&](Strategy& strategy) {
    return strategy.distribute(records(files).batch(GlobalBatch{6}));
  });
  EXPECT_EQ(found.rows, numbers(testing::count(0, 19)));
  EXPECT_EQ(found.errors, std::vector<int>({0, 1})) << "the one that was to read it";
}

TEST_F(ExactlyOnce, BehindABadRow) {
  write("a.csv", "x\n0\n1\n2\nthree\n4\n5\n6\n");
  write("b.csv", "x\n7\n8\n9\n10\n11\n");
  Rows good = testing::count(0, 12);
  good.erase(good.begin() + 3);
  const auto rows = data::csv({path("a.csv"), path("b.csv")},
                              {.columns = {{.name = "x", .type = data::CsvType::int64}}})
                        .map([](const auto& row) { return row.at("x"); });
  for (const int workers : {1, 2, 3}) {
    for (const int replicas : {1, 2}) {
      SCOPED_TRACE(::testing::Message() << workers << " workers of " << replicas << " replicas");
      const Found found = found_by(workers, replicas, [&](Strategy& strategy) {
        return strategy.distribute(
            rows.batch(GlobalBatch{4}).with_options({AutoShardPolicy::data}));
      });
      EXPECT_EQ(found.rows, numbers(good));
      EXPECT_EQ(found.errors, std::vector<int>(static_cast<std::size_t>(workers), 1));
    }
  }
}

/// An element that cannot be made costs the elements that it would have become, and no other:
/// stages with a state of their own go on where they were.
TEST_F(ExactlyOnce, BehindErrorsOfInterleaveAndUnbatch) {
  const auto interleaved = [] {
    return range(6).interleave(
        [](const Tensor& x) {
          const auto first = x.item<std::int64_t>() * 10;
          if (first == 20) throw DataError("no dataset for 2");
          return range(3).map([first](const Tensor& y) {
            if (first == 10 && y.item<std::int64_t>() == 1) throw DataError("a hole");
            return y + first;
          });
        },
        {.cycle_length = 2, .block_length = 2});
  };
  Numbers rows;
  for (const std::int64_t first : {0, 10, 30, 40, 50}) {
    for (const std::int64_t y : {0, 1, 2}) rows.insert(first + y);
  }
  Numbers without_the_hole = rows;
  without_the_hole.erase(11);
  const auto unbatched = [] {
    return with_a_hole(6, 2)
        .map([](const Tensor& x) { return x * 10 + torch::arange(3); })
        .unbatch();
  };
  for (const int workers : {1, 2, 3}) {
    for (const int replicas : {1, 2}) {
      SCOPED_TRACE(::testing::Message() << workers << " workers of " << replicas << " replicas");
      const auto found = [&](const auto& dataset) {
        return found_by(workers, replicas, [&](Strategy& strategy) {
          return strategy.distribute(
              dataset.batch(GlobalBatch{4}).with_options({AutoShardPolicy::data}));
        });
      };
      const Found turns = found(interleaved());
      EXPECT_EQ(turns.rows, without_the_hole);
      EXPECT_EQ(turns.errors, std::vector<int>(static_cast<std::size_t>(workers), 2));
      const Found single = found(unbatched());
      EXPECT_EQ(single.rows, rows);
      EXPECT_EQ(single.errors, std::vector<int>(static_cast<std::size_t>(workers), 1));
    }
  }
}

/// The caller's own division: batches are dealt out, of which one has a row that cannot be made.
TEST_F(ExactlyOnce, BehindErrorsOfBatchesThatAreDealtOut) {
  const auto files = with_a_missing_file();
  Rows good = testing::count(0, 20);
  good.erase(good.begin() + 5);
  for (const int replicas : {1, 2}) {
    const Found holes = found_by(2, replicas, [&](Strategy& strategy) {
      return strategy.distribute_from_function([&](const InputContext& context) {
        return with_a_hole(20, 5).batch(PerReplicaBatch{2}).shard(2, context.input_pipeline_id);
      });
    });
    EXPECT_EQ(holes.rows, numbers(good)) << replicas << " replicas";
    const Found lost = found_by(2, replicas, [&](Strategy& strategy) {
      return strategy.distribute_from_function([&](const InputContext& context) {
        return records(files).batch(PerReplicaBatch{2}).shard(2, context.input_pipeline_id);
      });
    });
    EXPECT_EQ(lost.rows, numbers(testing::count(0, 19))) << replicas << " replicas";
    const Found elements = found_by(2, replicas, [&](Strategy& strategy) {
      return strategy.distribute_from_function([&](const InputContext& context) {
        return records(files).shard(2, context.input_pipeline_id).batch(PerReplicaBatch{2});
      });
    });
    EXPECT_EQ(elements.rows, numbers(testing::count(0, 19))) << replicas << " replicas";
    EXPECT_EQ(elements.errors, std::vector<int>({1, 1})) << "a lost file is everybody's error";
  }
}

using OnThreads = testing::TwoReplicas;

TEST_F(OnThreads, AnErrorCostsItsElementAndNoOther) {
  for (const bool ahead : {false, true}) {
    const auto iterator =
        strategy.distribute(with_a_hole(8, 5).batch(GlobalBatch{4}), {.prefetch_to_device = ahead})
            .iterate();
    EXPECT_EQ(testing::step_of(iterator->get_next()), (Step{{0, 1}, {2, 3}}));
    EXPECT_THROW(iterator->get_next(), DataError);
    EXPECT_EQ(testing::step_of(iterator->get_next()), (Step{{4, 6}, {7}}));
    EXPECT_FALSE(iterator->next());
  }
  // Whole elements: the replicas before the error have theirs.
  const auto whole = strategy.distribute_from_function([](const InputContext&) {
    return range(8).batch(PerReplicaBatch{1}).map([](const Tensor& x) {
      if (x.item<std::int64_t>() == 3) throw DataError("three");
      return x;
    });
  });
  const auto iterator = whole.iterate();
  EXPECT_EQ(testing::step_of(iterator->get_next()), (Step{{0}, {1}}));
  EXPECT_THROW(iterator->get_next(), DataError);
  EXPECT_EQ(testing::step_of(iterator->get_next()), (Step{{2}, {4}}));
  EXPECT_EQ(testing::step_of(iterator->get_next()), (Step{{5}, {6}}));
}

TEST_F(OnThreads, PositionsBehindErrorsGoOnExactly) {
  const auto make = [&] { return strategy.distribute(with_a_hole(20, 9).batch(GlobalBatch{4})); };
  const auto dataset = make();
  const auto iterator = dataset.iterate();
  std::vector<std::pair<DatasetPosition, Step>> steps;
  for (bool more = true; more;) {
    try {
      const DatasetPosition position = iterator->position();
      const auto batch = iterator->next();
      more = batch.has_value();
      if (more) steps.emplace_back(position, testing::step_of(*batch));
    } catch (const DataError&) {
    }
  }
  ASSERT_EQ(steps.size(), 5U);
  int errors = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto rest = make().iterate_from(DatasetPosition::parse(steps[i].first.to_string()));
    for (std::size_t k = i; k < steps.size();) {
      try {
        EXPECT_EQ(testing::step_of(rest->get_next()), steps[k].second) << "from step " << i;
        ++k;
      } catch (const DataError&) {
        ++errors;
      }
    }
    EXPECT_FALSE(rest->next());
  }
  EXPECT_EQ(errors, 3) << "it comes out again where no step was behind it";
}

/// The same where one worker alone had the error.
TEST_F(ExactlyOnce, APositionBehindAnErrorOfOneWorkerIsEverybodys) {
  write_records("a", {"0", "1", "2", "3", "4", "5", "6", "7"});
  const std::string b = write_records("b", {"10", "11", "12", "13", "14", "15", "16", "17"});
  damage(b, 1, 2);
  std::string chiefs;
  testing::run_workers({.workers = 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    const auto make = [&] {
      return strategy.distribute(records({path("a"), path("b")}).batch(GlobalBatch{4}));
    };
    const auto next = [](auto& iterator) {
      for (;;) {
        try {
          return testing::step_of(iterator.get_next());
        } catch (const DataError&) {
        }
      }
    };
    const auto first = make();
    const auto iterator = first.iterate();
    next(*iterator);
    if (strategy.worker_index() == 0) chiefs = iterator->position().to_string();
    const Step second = next(*iterator);
    const auto again = make();
    const auto resumed = again.iterate_from(DatasetPosition::parse(chiefs));
    EXPECT_EQ(next(*resumed), second);
    EXPECT_EQ(second, strategy.worker_index() == 0 ? (Step{{2, 3}}) : (Step{{13, 14}}));
  });
}

TEST_F(ExactlyOnce, APositionBehindAnErrorInABatch) {
  write_records("a", {"0", "1", "2", "3"});
  const std::string c = write_records("c", {"5", "6", "7", "8", "9"});
  damage(c, 2, 1);
  const auto make = [&] { return records({path("a"), path("b"), path("c")}).batch(2).shard(2, 1); };
  const auto outcome = [](auto& iterator) {
    try {
      const auto batch = iterator.next();
      return batch ? numbers_of(*batch) : Rows{-1};
    } catch (const SystemError&) {
      return Rows{-2};
    } catch (const DataError&) {
      return Rows{-3};
    }
  };
  const auto dataset = make();
  std::vector<Rows> all;
  std::vector<std::string> positions;
  auto iterator = dataset.iterate();
  do {
    positions.push_back(iterator.position().to_string());
    all.push_back(outcome(iterator));
  } while (all.back() != Rows{-1});
  for (std::size_t i = 0; i < positions.size(); ++i) {
    auto rest = make().iterate_from(DatasetPosition::parse(positions[i]));
    for (std::size_t k = i; k < all.size(); ++k) {
      EXPECT_EQ(outcome(rest), all[k]) << "from " << positions[i];
    }
  }
  // A file that is lost later is none of the errors that were passed.
  std::filesystem::remove(path("a"));
  EXPECT_THAT(testing::error_of<SystemError>(
                  [&] { (void)make().iterate_from(DatasetPosition::parse(positions.back())); }),
              HasSubstr(path("a")));
}

}  // namespace
}  // namespace lockstep
