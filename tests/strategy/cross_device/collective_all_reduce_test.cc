// Cross-device ops over the workers of a group: here threads of one process, each with a session.
#include "lockstep/collective_all_reduce.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "helpers.h"
#include "strategy/cross_device/collective_keys.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Runs fn on `workers` threads, each a worker with `local` devices, in its strategy's scope.
void run_workers(int workers, int local,
                 const std::function<void(CollectiveAllReduce&, int rank)>& fn,
                 const CommunicationOptions& options = {}, coll::SessionOptions session = {}) {
  session.replicas = local;
  coll::run_ranks(
      workers,
      [&](coll::Session& group) {
        const int rank = group.rank();
        auto ops = std::make_shared<CollectiveAllReduce>(std::move(group), devices(local), options);
        MirroredOptions mirrored = cpus(local);
        mirrored.cross_device_ops = ops;
        MirroredStrategy strategy(mirrored);
        auto scope = strategy.scope();
        fn(*ops, rank);
      },
      session);
}

/// One scalar for each local device: the global replica's number, from 1.
PerReplica<Tensor> numbered(int rank, int local) {
  std::vector<Tensor> each;
  for (int i = 0; i < local; ++i) each.push_back(torch::full({}, rank * local + i + 1.0));
  return on_devices(std::move(each));
}

using CollectiveTest = LoggedTest;

TEST_F(CollectiveTest, Case70Dense) {
  for (const auto& [workers, local] : {std::pair(2, 1), {1, 2}, {4, 1}, {2, 2}, {1, 1}, {3, 2}}) {
    const int n = workers * local;
    run_workers(workers, local, [&](CollectiveAllReduce& ops, int rank) {
      EXPECT_EQ(ops.group_size(), n);
      const auto value = numbered(rank, local);
      EXPECT_THAT(numbers(ops.reduce(ReduceOp::sum, value, value)), Each(n * (n + 1) / 2.0));
      EXPECT_THAT(numbers(ops.reduce(ReduceOp::mean, value, value)), Each((n + 1) / 2.0));
      EXPECT_THAT(numbers(ops.reduce(ReduceOp::sum, value, "CPU:1")),
                  ElementsAre(n * (n + 1) / 2.0));
    });
  }
}

TEST_F(CollectiveTest, Case71Batches) {
  const auto check = [](int workers, int local, std::vector<double> sums,
                        std::vector<double> means) {
    for (const std::int64_t bytes : {0, 1, 12, 100}) {
      run_workers(workers, local, [&](CollectiveAllReduce& ops, int rank) {
        std::vector<Tensor> first;
        std::vector<Tensor> second;
        for (int i = 0; i < local; ++i) {
          const double at = 2.0 * (rank * local + i);
          first.push_back(torch::full({}, at + 1));
          second.push_back(torch::tensor({at + 2, at + 2}));
        }
        const std::vector<ReducePair> pairs = {{on_devices(first), devices(local)},
                                               {on_devices(second), "CPU:0"}};
        const CommunicationOptions packs{.bytes_per_pack = bytes};
        const auto sum = ops.batch_reduce(ReduceOp::sum, pairs, packs);
        EXPECT_THAT(numbers(sum.at(0)), Each(sums[0]));
        EXPECT_THAT(numbers(sum.at(1).single()), ElementsAre(sums[1], sums[1]));
        const auto mean = ops.batch_reduce(ReduceOp::mean, pairs, packs);
        EXPECT_THAT(numbers(mean.at(0)), Each(means[0]));
        EXPECT_THAT(numbers(mean.at(1).single()), ElementsAre(means[1], means[1]));
      });
    }
  };
  check(2, 1, {4, 6}, {2, 3});
  check(1, 2, {4, 6}, {2, 3});
  check(2, 2, {16, 20}, {4, 5});
  check(4, 1, {16, 20}, {4, 5});
}

TEST_F(CollectiveTest, Case72Sparse) {
  const auto rows = [](std::vector<std::int64_t> at, std::vector<double> values) {
    const auto count = static_cast<std::int64_t>(at.size());
    return torch::sparse_coo_tensor(torch::tensor(at, torch::kLong).view({1, -1}),
                                    torch::tensor(values, torch::kDouble).view({count, 1}),
                                    {10, 1});
  };
  run_workers(2, 1, [&](CollectiveAllReduce& ops, int rank) {
    const auto equal = on_devices({rank == 0 ? rows({0, 1}, {1, 2}) : rows({1, 2}, {3, 4})});
    const Tensor sum = ops.reduce(ReduceOp::sum, equal, equal)[0];
    EXPECT_THAT(numbers(sum._indices()), ElementsAre(0, 1, 1, 2));
    EXPECT_THAT(numbers(sum._values()), ElementsAre(1, 2, 3, 4));
    EXPECT_EQ(sum.size(0), 10);
    const Tensor mean = ops.reduce(ReduceOp::mean, equal, equal)[0];
    EXPECT_THAT(numbers(mean._values()), ElementsAre(0.5, 1, 1.5, 2));
    // Different numbers of rows, one with a duplicate, one with none.
    const auto uneven = on_devices({rank == 0 ? rows({7, 7, 3}, {1, 2, 4}) : rows({}, {})});
    const Tensor half = ops.reduce(ReduceOp::mean, uneven, uneven)[0];
    EXPECT_THAT(numbers(half._indices()), ElementsAre(3, 7));
    EXPECT_THAT(numbers(half._values()), ElementsAre(2, 1.5));
  });
  run_workers(2, 2, [&](CollectiveAllReduce& ops, int rank) {
    const auto two = on_devices({rows({rank}, {1}), rows({rank}, {2})});
    const auto sum = ops.reduce(ReduceOp::sum, two, two);
    ASSERT_EQ(sum.size(), 2);
    EXPECT_THAT(numbers(sum[1]._indices()), ElementsAre(0, 0, 1, 1));
    EXPECT_THAT(numbers(sum[1]._values()), ElementsAre(1, 2, 1, 2));
    // Dense and sparse together: dense.
    const auto mixed = on_devices({rows({rank}, {1}), torch::ones({10, 1}, torch::kDouble)});
    const auto total = ops.reduce(ReduceOp::sum, mixed, mixed);
    EXPECT_THAT(numbers(total[0]), ElementsAre(3, 3, 2, 2, 2, 2, 2, 2, 2, 2));
  });
}

TEST_F(CollectiveTest, Case74AllGather) {
  for (const auto& [workers, local] : {std::pair(2, 1), {1, 2}}) {
    run_workers(workers, local, [&, local = local](CollectiveAllReduce& ops, int) {
      const Tensor one = torch::tensor({{{1.0, 2.0}, {1.0, 2.0}}});
      const auto value = on_devices(std::vector<Tensor>(static_cast<std::size_t>(local), one));
      for (const std::int64_t axis : {0, 1, 2, -1}) {
        const auto all = ops.all_gather(value, value, axis);
        for (int i = 0; i < all.size(); ++i) {
          EXPECT_TRUE(torch::equal(all[i], torch::cat({one, one}, axis))) << axis;
        }
      }
    });
  }
  // Only the axis itself may differ.
  run_workers(2, 1, [](CollectiveAllReduce& ops, int rank) {
    const auto uneven = on_devices({torch::full({2, rank + 1}, rank + 1.0)});
    const Tensor all = ops.all_gather(uneven, "CPU:0", 1)[0];
    EXPECT_THAT(numbers(all), ElementsAre(1, 2, 2, 1, 2, 2));
    const auto empty = on_devices({torch::ones({rank, 3})});
    EXPECT_EQ(ops.all_gather(empty, "CPU:0")[0].size(0), 1);
  });
  EXPECT_THROW(run_workers(2, 1,
                           [](CollectiveAllReduce& ops, int rank) {
                             ops.all_gather(on_devices({torch::ones({2, rank + 1})}), "CPU:0");
                           }),
               Mismatch);
}

TEST_F(CollectiveTest, Case75AWorkerThatDoesNotCome) {
  const Tensor rows =
      torch::sparse_coo_tensor(torch::zeros({1, 1}, torch::kLong), torch::ones({1, 1}), {4, 1});
  const std::function<void(CollectiveAllReduce&)> calls[] = {
      [](CollectiveAllReduce& ops) { ops.reduce(ReduceOp::sum, numbered(0, 1), "CPU:0"); },
      [](CollectiveAllReduce& ops) {
        const std::vector<ReducePair> pairs(2, ReducePair{numbered(0, 1), "CPU:0"});
        ops.batch_reduce(ReduceOp::sum, pairs);
      },
      [&](CollectiveAllReduce& ops) { ops.reduce(ReduceOp::sum, on_devices({rows}), "CPU:0"); }};
  for (const auto& call : calls) {
    std::atomic<bool> over = false;
    run_workers(2, 1,
                [&](CollectiveAllReduce& ops, int rank) {
                  if (rank == 0) {
                    EXPECT_THAT(error_of<Timeout>(Code::deadline_exceeded, [&] { call(ops); }),
                                HasSubstr("(reduce SUM "));
                    over = true;
                    over.notify_all();
                  } else {
                    over.wait(false);
                  }
                },
                {.timeout_seconds = 0.2});
  }
}

TEST_F(CollectiveTest, Case78SumsGrowWithWorkersAndMeansDoNot) {
  for (const int local : {1, 2, 3}) {
    run_workers(3, local, [&](CollectiveAllReduce& ops, int) {
      std::vector<Tensor> each;
      double local_sum = 0;
      for (int i = 0; i < local; ++i) {
        each.push_back(torch::full({1}, i + 1.0));
        local_sum += i + 1;
      }
      const auto value = on_devices(each);
      EXPECT_THAT(numbers(ops.reduce(ReduceOp::sum, value, value)), Each(3 * local_sum));
      EXPECT_THAT(numbers(ops.reduce(ReduceOp::mean, value, value)), Each(local_sum / local));
    });
  }
}

// Every algorithm of the collectives, where it applies, on the shapes of the original's test.
TEST_F(CollectiveTest, Case80EveryAlgorithmIsAPlainSum) {
  const std::vector<std::vector<std::int64_t>> shapes = {{},    {8},     {4, 4}, {32},
                                                         {120}, {7, 13}, {8, 8}};
  for (const char* algorithm :
       {"direct", "halving", "doubling", "tree", "hierarchical", "one_pass", "slots"}) {
    coll::SessionOptions session;
    session.algorithms = std::string("all_reduce=") + algorithm;
    run_workers(
        4, 1,
        [&](CollectiveAllReduce& ops, int) {
          for (const auto& shape : shapes) {
            const auto value = on_devices({torch::full(shape, 0.25)});
            const Tensor sum = ops.reduce(ReduceOp::sum, value, value)[0];
            EXPECT_TRUE(torch::equal(sum, torch::ones(shape))) << algorithm;
          }
        },
        {}, session);
  }
}

// 4 replicas as 1 x 4, 2 x 2 and 4 x 1, packed or not: the bits of one process.
TEST_F(CollectiveTest, TheLayoutDoesNotChangeTheBits) {
  const at::ScalarType types[] = {torch::kFloat, torch::kBFloat16, torch::kInt,
                                  torch::kChar,  torch::kShort,    torch::kComplexFloat,
                                  torch::kByte,  torch::kDouble};
  std::vector<std::vector<Tensor>> replicas(4);
  for (auto& own : replicas) {
    for (std::int64_t k = 0; k < 8; ++k) {
      own.push_back((torch::randn({k * 37, 3}) * 100).to(types[k]).transpose(0, 1));
    }
  }
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean}) {
    std::vector<Tensor> expected;
    for (std::size_t k = 0; k < 8; ++k) {
      std::vector<Tensor> each;
      for (const auto& own : replicas) each.push_back(own[k]);
      expected.push_back(ReductionToOneDevice().reduce(op, on_devices(each), "CPU:0")[0]);
    }
    for (const int local : {1, 2, 4}) {
      for (const std::int64_t bytes : {0, 500}) {
        run_workers(4 / local, local, [&](CollectiveAllReduce& ops, int rank) {
          std::vector<ReducePair> pairs;
          for (std::size_t k = 0; k < 8; ++k) {
            std::vector<Tensor> each;
            for (int i = 0; i < local; ++i) {
              each.push_back(replicas[static_cast<std::size_t>(rank * local + i)][k]);
            }
            pairs.push_back({on_devices(each), devices(local)});
          }
          const auto results = ops.batch_reduce(op, pairs, {.bytes_per_pack = bytes});
          for (std::size_t k = 0; k < 8; ++k) {
            for (int i = 0; i < local; ++i) {
              EXPECT_TRUE(same_bits(results[k][i], expected[k])) << local << " " << k;
            }
          }
        });
      }
    }
  }
}

TEST_F(CollectiveTest, EveryKindOfTensor) {
  run_workers(2, 1, [](CollectiveAllReduce& ops, int) {
    const Tensor z = torch::complex(torch::ones({3}), torch::full({3}, 2.0F));
    const auto turned = on_devices({at::conj(z)});
    EXPECT_TRUE(torch::equal(ops.reduce(ReduceOp::sum, turned, turned)[0],
                             (at::conj(z) * 2).resolve_conj()));
    const auto negative = on_devices({at::_neg_view(torch::ones({2}))});
    EXPECT_THAT(numbers(ops.reduce(ReduceOp::sum, negative, negative)[0]), ElementsAre(-2, -2));
    EXPECT_THAT(numbers(ops.all_gather(negative, "CPU:0")[0]), ElementsAre(-1, -1, -1, -1));
    const auto recorded = on_devices({torch::full({}, 3.0, torch::requires_grad())});
    const Tensor sum = ops.reduce(ReduceOp::sum, recorded, recorded)[0];
    EXPECT_EQ(sum.dim(), 0);
    EXPECT_EQ(number(sum), 6);
    EXPECT_FALSE(sum.requires_grad());
    const auto empty = on_devices({torch::empty({0, 4})});
    EXPECT_EQ(ops.reduce(ReduceOp::mean, empty, empty)[0].size(1), 4);
  });
}

TEST_F(CollectiveTest, EveryResultHasItsOwnMemory) {
  run_workers(2, 2, [](CollectiveAllReduce& ops, int) {
    const std::vector<ReducePair> pairs(2, ReducePair{numbered(0, 2), devices(2)});
    const auto results = ops.batch_reduce(ReduceOp::sum, pairs);
    std::vector<const void*> storages;
    for (const auto& result : results) {
      for (int i = 0; i < 2; ++i) storages.push_back(result[i].storage().data());
    }
    std::sort(storages.begin(), storages.end());
    EXPECT_EQ(std::adjacent_find(storages.begin(), storages.end()), storages.end());
  });
}

/// What every worker of two gets from fn(ops, rank), which they should not agree on.
void expect_mismatch(int local, const std::function<void(CollectiveAllReduce&, int)>& fn) {
  std::atomic<int> found = 0;
  run_workers(2, local, [&](CollectiveAllReduce& ops, int rank) {
    EXPECT_THROW(fn(ops, rank), Mismatch);
    ++found;
  });
  EXPECT_EQ(found, 2);
}

TEST_F(CollectiveTest, DisagreementsAreFoundBeforeDataIsMixed) {
  for (const int local : {1, 2}) {
    const auto value = [&](const Tensor& one) {
      return on_devices(std::vector<Tensor>(static_cast<std::size_t>(local), one));
    };
    const auto reduce = [&](CollectiveAllReduce& ops, ReduceOp op, const Tensor& one) {
      ops.reduce(op, value(one), "CPU:0");
    };
    expect_mismatch(local, [&](CollectiveAllReduce& ops, int rank) {
      reduce(ops, ReduceOp::sum, torch::ones({rank + 1}));
    });
    expect_mismatch(local, [&](CollectiveAllReduce& ops, int rank) {
      reduce(ops, ReduceOp::sum, torch::ones({2 + rank, 3 - rank}));  // [2, 3] and [3, 2]
    });
    expect_mismatch(local, [&](CollectiveAllReduce& ops, int rank) {
      reduce(ops, ReduceOp::sum, torch::ones({2}, rank == 0 ? torch::kFloat : torch::kInt));
    });
    // Both are added as int64.
    expect_mismatch(local, [&](CollectiveAllReduce& ops, int rank) {
      reduce(ops, ReduceOp::mean, torch::ones({2}, rank == 0 ? torch::kLong : torch::kInt));
    });
    expect_mismatch(local, [&](CollectiveAllReduce& ops, int rank) {
      reduce(ops, rank == 0 ? ReduceOp::sum : ReduceOp::mean, torch::ones({2}, torch::kLong));
    });
    // A batch with the same number of elements, cut otherwise.
    expect_mismatch(local, [&](CollectiveAllReduce& ops, int rank) {
      const Tensor two = torch::ones({2});
      const Tensor four = torch::ones({4});
      const std::vector<ReducePair> pairs = {{value(rank == 0 ? two : four), "CPU:0"},
                                             {value(rank == 0 ? four : two), "CPU:0"}};
      ops.batch_reduce(ReduceOp::sum, pairs);
    });
    const auto rows = [](std::int64_t height) {
      return torch::sparse_coo_tensor(torch::zeros({1, 1}, torch::kLong), torch::ones({1, 1}),
                                      {height, 1});
    };
    expect_mismatch(local, [&](CollectiveAllReduce& ops, int rank) {
      reduce(ops, ReduceOp::sum, rows(rank == 0 ? 4 : 10));
    });
    expect_mismatch(local, [&](CollectiveAllReduce& ops, int rank) {
      reduce(ops, rank == 0 ? ReduceOp::sum : ReduceOp::mean, rows(4));
    });
    expect_mismatch(local, [&](CollectiveAllReduce& ops, int rank) {
      reduce(ops, ReduceOp::sum, rank == 0 ? rows(4) : torch::ones({4, 1}));
    });
    expect_mismatch(local, [&](CollectiveAllReduce& ops, int rank) {
      ops.all_gather(value(torch::ones({2, 2})), "CPU:0", rank);
    });
  }
}

// The group is as it was after a call that was refused here: nothing was sent.
TEST_F(CollectiveTest, RefusedBeforeAnythingIsSent) {
  run_workers(2, 2, [](CollectiveAllReduce& ops, int rank) {
    const Tensor rows =
        torch::sparse_coo_tensor(torch::zeros({1, 1}, torch::kLong), torch::ones({1, 1}), {4, 1});
    if (rank == 0) {
      const std::vector<ReducePair> bad = {
          {on_devices({torch::ones({1}), torch::ones({2})}), "CPU:0"},
          {on_devices({rows, rows}), "CPU:0"}};
      EXPECT_THAT(wrong_value([&] { ops.batch_reduce(ReduceOp::sum, bad); }),
                  HasSubstr("component 1"));
    }
    EXPECT_THAT(numbers(ops.reduce(ReduceOp::sum, numbered(rank, 2), "CPU:0")), ElementsAre(10));
  });
}

TEST_F(CollectiveTest, LastFirstAndInPacks) {
  run_workers(2, 1, [](CollectiveAllReduce& ops, int) {
    std::vector<ReducePair> pairs;
    for (const std::int64_t length : {1, 200, 8, 32}) {  // 4, 800, 32 and 128 bytes
      pairs.push_back({on_devices({torch::ones({length})}), "CPU:0"});
    }
    ops.batch_reduce(ReduceOp::sum, pairs, {.bytes_per_pack = 200});
    // {128, 32, 800} and {4}.
    EXPECT_THAT(ops.session().history(),
                ::testing::ContainsRegex("float32.240.[^\n]*\n[^\n]*float32.1. "));
  });
}

TEST_F(CollectiveTest, OneDeadlineFromEntry) {
  std::atomic<bool> over = false;
  run_workers(2, 1, [&](CollectiveAllReduce& ops, int rank) {
    if (rank == 1) return over.wait(false);
    // The first thread waits for a worker that does not come; the second for the first.
    std::jthread first([&] {
      EXPECT_THROW(ops.reduce(ReduceOp::sum, numbered(0, 1), "CPU:0", {.timeout_seconds = 1}),
                   Timeout);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THROW(ops.reduce(ReduceOp::sum, numbered(0, 1), "CPU:0", {.timeout_seconds = 0.1}),
                 Timeout);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(700));
    first.join();
    over = true;
    over.notify_all();
  });
}

/// A tensor that is not distributed: every worker has one, whatever the number of its devices.
TEST_F(CollectiveTest, OfPlainTensorsEveryWorkerHasOne) {
  for (const int local : {1, 2}) {
    run_workers(3, local, [&](CollectiveAllReduce& ops, int rank) {
      const Tensor own = torch::full({2}, rank + 1.0);
      const Tensor integer = torch::full({2}, rank + 2, torch::kInt);
      const std::vector<ReducePair> pairs = {{own, devices(2)},
                                             {numbered(rank, local), "CPU:0"},
                                             {integer, "CPU:1"},
                                             {torch::eye(2).to_sparse() * (rank + 1), "CPU:0"}};
      const auto sums = ops.batch_reduce(ReduceOp::sum, pairs);
      const int n = 3 * local;
      ASSERT_EQ(sums.size(), 4U);
      EXPECT_THAT(numbers(sums[0][1]), ElementsAre(6, 6));
      EXPECT_THAT(numbers(sums[1].single()), ElementsAre(n * (n + 1) / 2.0));
      EXPECT_THAT(numbers(sums[2].single()), ElementsAre(9, 9));
      EXPECT_EQ(sums[2].single().scalar_type(), torch::kInt);
      EXPECT_THAT(numbers(sums[3].single().to_dense()), ElementsAre(6, 0, 0, 6));
      const auto means = ops.batch_reduce(ReduceOp::mean, pairs);
      EXPECT_THAT(numbers(means[0][1]), ElementsAre(2, 2));
      EXPECT_THAT(numbers(means[2].single()), ElementsAre(3, 3));
      EXPECT_TRUE(means[2].single().is_floating_point());
      EXPECT_THAT(numbers(means[3].single().to_dense()), ElementsAre(2, 0, 0, 2));
      EXPECT_THAT(numbers(ops.reduce(ReduceOp::max, own, "CPU:0").single()), ElementsAre(3, 3));
    });
  }
}

TEST_F(CollectiveTest, WhatIsRefused) {
  run_workers(1, 2, [](CollectiveAllReduce& ops, int) {
    EXPECT_THAT(wrong_value([&] { ops.reduce(ReduceOp::sum, torch::ones({}), "CPU:0"); }),
                AllOf(HasSubstr("1 component"), HasSubstr("2 devices")));
    const auto shapes = on_devices({torch::ones({1}), torch::ones({2})});
    EXPECT_THAT(wrong_value([&] { ops.reduce(ReduceOp::sum, shapes, shapes); }),
                HasSubstr("component 1"));
    // Nothing was sent: the group goes on.
    EXPECT_THAT(numbers(ops.reduce(ReduceOp::sum, numbered(0, 2), "CPU:0")), ElementsAre(3));
  });
  EXPECT_THAT(wrong_value([] {
                coll::run_ranks(2, [](coll::Session& group) {
                  CollectiveAllReduce ops(std::move(group), devices(2));
                });
              }),
              AllOf(HasSubstr("2 local devices"), HasSubstr("2 replicas on 2 workers")));
}

TEST_F(CollectiveTest, EnginesThatAreNotBuilt) {
  run_workers(2, 1,
              [](CollectiveAllReduce& ops, int rank) {
                for (int i = 0; i < 3; ++i) {
                  EXPECT_THAT(numbers(ops.reduce(ReduceOp::sum, numbered(rank, 1), "CPU:0")),
                              ElementsAre(3));
                }
              },
              {.implementation = "nccl"});
  EXPECT_THAT(log(), ::testing::SizeIs(2));  // one a worker
  EXPECT_THAT(log(), Each(AllOf(HasSubstr("nccl"), HasSubstr("host"))));
}

// Two threads of each worker: whoever comes first, a call's operations stay together. All calls are
// alike, so that it does not matter which thread of a worker comes first.
TEST_F(CollectiveTest, ThreadsDoNotInterleave) {
  for (const int local : {1, 2}) {
    run_workers(2, local, [&](CollectiveAllReduce& ops, int rank) {
      const auto pairs = [&] {
        std::vector<ReducePair> all;
        for (int k = 0; k < 5; ++k) {
          const Tensor one = torch::full({k + 1}, rank + 1.0);
          all.push_back(
              {on_devices(std::vector<Tensor>(static_cast<std::size_t>(local), one)), "CPU:0"});
        }
        return all;
      }();
      const auto work = [&] {
        for (int i = 0; i < 30; ++i) {
          for (const auto& result : ops.batch_reduce(ReduceOp::sum, pairs, {.bytes_per_pack = 8})) {
            EXPECT_THAT(numbers(result.single()), Each(3.0 * local));
          }
        }
      };
      Strategy& strategy = get_strategy();
      std::jthread other([&] {
        auto scope = strategy.scope();
        work();
      });
      work();
    });
  }
}

// One thread is in run() and has the lanes, the other wants them from outside.
TEST_F(CollectiveTest, StepsAndOtherThreads) {
  run_workers(2, 2, [](CollectiveAllReduce&, int) {
    Strategy& strategy = get_strategy();
    const auto work = [&](bool in_step) {
      for (int i = 0; i < 30; ++i) {
        if (in_step) {
          strategy.run([](ReplicaContext& replica) {
            EXPECT_EQ(number(replica.all_reduce(ReduceOp::sum, torch::full({2, 1}, 1.0)).sum()), 8);
          });
        } else {
          EXPECT_THAT(
              numbers(strategy.reduce_to(
                  ReduceOp::sum, on_devices({torch::full({2, 1}, 1.0), torch::full({2, 1}, 1.0)}),
                  "CPU:0")[0]),
              ElementsAre(4, 4));
        }
      }
    };
    std::jthread other([&] { work(true); });
    work(false);
  });
}

TEST_F(CollectiveTest, AsTheOpsOfAStrategy) {
  run_workers(2, 2, [](CollectiveAllReduce&, int rank) {
    Strategy& strategy = get_strategy();
    auto sums = strategy.run([&](ReplicaContext& replica) {
      return Tensor(
          replica.all_reduce(ReduceOp::sum, torch::full({}, rank * 2 + replica_id() + 1.0)));
    });
    EXPECT_EQ(number(sums[0]), 10);
    EXPECT_EQ(number(sums[1]), 10);
  });
}

TEST(CollectiveKeysTest, EachGroupAndDeviceCounts) {
  detail::CollectiveKeys keys;
  EXPECT_EQ(keys.group_key({"CPU:0", "CPU:1"}), 1);
  EXPECT_EQ(keys.group_key({"CPU:0"}), 2);
  EXPECT_EQ(keys.group_key({"CPU:1", "CPU:0"}), 1);
  EXPECT_EQ(keys.next_instance_key(1, "CPU:0"), 100);
  EXPECT_EQ(keys.next_instance_key(1, "CPU:0"), 101);
  EXPECT_EQ(keys.next_instance_key(1, "CPU:1"), 100);
  EXPECT_EQ(keys.next_instance_key(2, "CPU:0"), 100);
  EXPECT_THAT(wrong_value([&] { keys.next_instance_key(3, "CPU:0"); }), HasSubstr("group 3"));
  EXPECT_THAT(wrong_value([&] { keys.next_instance_key(2, "CPU:1"); }), HasSubstr("CPU:1"));
}

}  // namespace
}  // namespace lockstep
