// Every collective, over ranks as threads, against results computed without the engine.
#include <atomic>
#include <numeric>
#include <thread>

#include "tests/coll/fixtures.h"

namespace lockstep::coll {
namespace {

std::vector<std::int32_t> ramp(int rank, std::size_t count) {
  std::vector<std::int32_t> values(count);
  std::iota(values.begin(), values.end(), rank * 1000);
  return values;
}

class SessionSizes : public testing::TestWithParam<int> {};

TEST_P(SessionSizes, AllReduceOfEveryTypeAndOpIsTheFixedTree) {
  const int ranks = GetParam();
  run_ranks(ranks, [&](Session& group) {
    for (const DType dtype : kAllTypes) {
      for (int op = 0; op < kOpCount; ++op) {
        if (!kernel::check_supported(static_cast<Op>(op), dtype).ok()) continue;
        for (const std::size_t count : {0, 1, 5, 257, 5000}) {
          Data mine = make_input(dtype, count, group.rank());
          group.all_reduce(static_cast<Op>(op), mine.buffer());
          ASSERT_EQ(mine, expected_reduction(static_cast<Op>(op), dtype, count, group.size()))
              << to_string(dtype) << " " << to_string(static_cast<Op>(op)) << " " << count;
        }
      }
    }
  });
}

TEST_P(SessionSizes, AllReduceOutOfPlaceLeavesTheInputAlone) {
  run_ranks(GetParam(), [](Session& group) {
    for (const std::size_t count : {3, 10'000}) {
      const Data input = make_input(DType::float32, count, group.rank());
      Data kept = input;
      Data output(DType::float32, count);
      group.all_reduce(Op::mean, ConstBuffer(kept.buffer()), output.buffer());
      EXPECT_EQ(kept, input);
      EXPECT_EQ(output, expected_reduction(Op::mean, DType::float32, count, group.size()));
    }
  });
}

TEST_P(SessionSizes, ReduceAndBroadcastForEveryRoot) {
  run_ranks(GetParam(), [](Session& group) {
    for (int root = 0; root < group.size(); ++root) {
      for (const std::size_t count : {1, 4000}) {
        const Data input = make_input(DType::float64, count, group.rank());
        Data given = input;
        Data output(DType::float64, group.rank() == root ? count : 0);
        group.reduce(Op::sum, ConstBuffer(given.buffer()), output.buffer(), Root{root});
        if (group.rank() == root) {
          EXPECT_EQ(output, expected_reduction(Op::sum, DType::float64, count, group.size()));
        }
        EXPECT_EQ(given, input);

        auto values = ramp(group.rank(), count);
        group.broadcast(std::span(values), Root{root});
        EXPECT_EQ(values, ramp(root, count));
      }
    }
  });
}

TEST_P(SessionSizes, GathersAndScatters) {
  run_ranks(GetParam(), [](Session& group) {
    const int n = group.size();
    std::vector<std::uint64_t> counts;
    for (int rank = 0; rank < n; ++rank)
      counts.push_back(static_cast<std::uint64_t>((rank * 5) % 7));
    std::vector<std::int32_t> all;
    for (int rank = 0; rank < n; ++rank) {
      const auto part = ramp(rank, counts[static_cast<std::size_t>(rank)]);
      all.insert(all.end(), part.begin(), part.end());
    }
    const auto mine = ramp(group.rank(), counts[static_cast<std::size_t>(group.rank())]);

    std::vector<std::int32_t> gathered(all.size());
    group.all_gather(std::span(mine), std::span(gathered), counts);
    EXPECT_EQ(gathered, all);

    for (int root = 0; root < n; ++root) {
      const bool here = group.rank() == root;
      std::vector<std::int32_t> at_root(here ? all.size() : 0);
      group.gather(std::span(mine), std::span(at_root), Root{root}, counts);
      if (here) {
        EXPECT_EQ(at_root, all);
      }

      std::vector<std::int32_t> part(mine.size());
      group.scatter(here ? ConstBuffer(std::span(all)) : ConstBuffer(), std::span(part), Root{root},
                    counts);
      EXPECT_EQ(part, mine);
    }

    const auto same = ramp(group.rank(), 11);
    std::vector<std::int32_t> equal(11 * static_cast<std::size_t>(n));
    group.all_gather(std::span(same), std::span(equal));
    for (int rank = 0; rank < n; ++rank) {
      const auto expected = ramp(rank, 11);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), equal.begin() + 11L * rank));
    }
  });
}

TEST_P(SessionSizes, ReduceScatterGivesEachRankItsPart) {
  run_ranks(GetParam(), [](Session& group) {
    const auto n = static_cast<std::size_t>(group.size());
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      const std::size_t part = 37;
      Data input = make_input(dtype, part * n, group.rank());
      Data output(dtype, part);
      group.reduce_scatter(Op::sum, ConstBuffer(input.buffer()), output.buffer());
      const Data whole = expected_reduction(Op::sum, dtype, part * n, group.size());
      const std::size_t bytes = part * size_of(dtype);
      EXPECT_EQ(0, std::memcmp(output.bytes.data(),
                               whole.bytes.data() + static_cast<std::size_t>(group.rank()) * bytes,
                               bytes));
    }
  });
}

TEST_P(SessionSizes, AllToAllTransposes) {
  run_ranks(GetParam(), [](Session& group) {
    const int n = group.size();
    std::vector<std::int32_t> input;
    for (int to = 0; to < n; ++to) {
      for (int i = 0; i < 3; ++i) input.push_back(group.rank() * 10'000 + to * 10 + i);
    }
    std::vector<std::int32_t> output(input.size());
    group.all_to_all(std::span(input), std::span(output));
    for (int from = 0; from < n; ++from) {
      for (int i = 0; i < 3; ++i)
        EXPECT_EQ(output[from * 3 + i], from * 10'000 + group.rank() * 10 + i);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, SessionSizes, testing::Values(1, 2, 3, 4, 5, 8));

TEST(Session, BarrierLetsNobodyThroughEarly) {
  std::atomic<int> arrived = 0;
  run_ranks(5, [&](Session& group) {
    for (int round = 1; round <= 50; ++round) {
      arrived.fetch_add(1);
      group.barrier();
      EXPECT_GE(arrived.load(), 5 * round);
      group.barrier();
    }
  });
}

TEST(Session, EveryMessageAlgorithmGivesTheSameBits) {
  for (const char* algorithm : {"direct", "doubling", "halving", "tree", "one_pass"}) {
    for (const int ranks : {2, 3, 4, 7}) {
      SessionOptions options;
      options.algorithms = std::string("all_reduce=") + algorithm;
      run_ranks(
          ranks,
          [&](Session& group) {
            for (const DType dtype : {DType::float32, DType::bfloat16}) {
              Data mine = make_input(dtype, 100'003, group.rank());
              group.all_reduce(Op::sum, mine.buffer());
              ASSERT_EQ(mine, expected_reduction(Op::sum, dtype, 100'003, ranks))
                  << algorithm << ranks;
            }
            EXPECT_NE(group.history().find(std::string("by ") + algorithm), std::string::npos);
          },
          options);
    }
  }
}

TEST(Session, HostsAreKnownAndHierarchicalPlansGiveTheSameBits) {
  Hub hub;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 5; ++rank) {
    threads.emplace_back([&hub, rank] {
      SessionOptions options;
      options.algorithms = "all_reduce=hierarchical";
      Session group =
          hub.join({.size = 5, .rank = rank, .host = rank < 3 ? 7 : 9, .options = options});
      EXPECT_EQ(group.host(0), group.host(2));
      EXPECT_NE(group.host(2), group.host(3));
      Data mine = make_input(DType::float32, 50'021, rank);
      group.all_reduce(Op::sum, mine.buffer());
      EXPECT_EQ(mine, expected_reduction(Op::sum, DType::float32, 50'021, 5));
      EXPECT_NE(group.history().find("by hierarchical"), std::string::npos);
    });
  }
}

TEST(Session, SeveralReplicasPerRankGiveTheBitsOfOneEach) {
  for (const int per_rank : {2, 3, 5}) {
    SessionOptions options;
    options.replicas = per_rank;
    run_ranks(
        3,
        [&](Session& group) {
          EXPECT_EQ(group.replicas(), 3 * per_rank);
          EXPECT_EQ(group.first_replica(), group.rank() * per_rank);
          for (const std::size_t count : {9, 3000}) {
            std::vector<Data> inputs;
            std::vector<ConstBuffer> views;
            for (int i = 0; i < per_rank; ++i) {
              inputs.push_back(make_input(DType::float32, count, group.first_replica() + i));
            }
            for (Data& input : inputs) views.emplace_back(input.buffer());
            Data output(DType::float32, count);
            group.all_reduce(Op::mean, std::span<const ConstBuffer>(views), output.buffer());
            EXPECT_EQ(output, expected_reduction(Op::mean, DType::float32, count, 3 * per_rank));
          }
        },
        options);
  }
}

// The second and later of equal small calls take a shorter way, on ranks with one replica only.
TEST(Session, RanksWithDifferentNumbersOfReplicasRepeatSmallCalls) {
  static constexpr int kReplicas[] = {1, 2, 1};
  Hub hub;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&hub, rank] {
      SessionOptions options;
      options.replicas = kReplicas[rank];
      Session group = hub.join({.size = 3, .rank = rank, .options = options});
      for (const std::size_t count : {1, 9, 60, 300}) {
        for (int turn = 0; turn < 4; ++turn) {
          std::vector<Data> inputs;
          std::vector<ConstBuffer> views;
          for (int i = 0; i < kReplicas[rank]; ++i) {
            inputs.push_back(make_input(DType::float32, count, group.first_replica() + i));
          }
          for (Data& input : inputs) views.emplace_back(input.buffer());
          Data output(DType::float32, count);
          group.all_reduce(Op::sum, std::span<const ConstBuffer>(views), output.buffer());
          ASSERT_EQ(output, expected_reduction(Op::sum, DType::float32, count, 4))
              << "rank " << rank << " turn " << turn << " count " << count;
        }
      }
    });
  }
}

TEST(Session, AsynchronousOperationsRunInOrder) {
  run_ranks(3, [](Session& group) {
    std::vector<std::vector<float>> tensors(20, std::vector<float>(1000));
    std::vector<Work> works;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      std::fill(tensors[i].begin(), tensors[i].end(), static_cast<float>(i + 1));
      works.push_back(group.start_all_reduce(Op::sum, std::span(tensors[i])));
    }
    std::vector<float> last(10, 1);
    group.all_reduce(Op::sum, std::span(last));  // behind all of them
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      works[i].wait();
      EXPECT_TRUE(works[i].done());
      EXPECT_EQ(tensors[i][999], static_cast<float>(3 * (i + 1)));
    }
    EXPECT_EQ(last[0], 3);
  });
}

TEST(Session, MessagesBetweenTwoRanksConcernNobodyElse) {
  run_ranks(4, [](Session& group) {
    if (group.rank() == 1) {
      for (int i = 0; i < 100; ++i) {
        const std::vector<double> x(7, i);
        group.send(std::span(x), To{3});
      }
    }
    if (group.rank() == 3) {
      for (int i = 0; i < 100; ++i) {
        std::vector<double> x(7);
        group.receive(std::span(x), From{1});
        EXPECT_EQ(x, std::vector<double>(7, i));
      }
    }
    group.barrier();
    // Both directions at once.
    const int peer = group.rank() ^ 1;
    const std::vector<int> out(50'000, group.rank());
    std::vector<int> in(50'000);
    Work sent = group.start_send(std::span(out), To{peer});
    group.receive(std::span(in), From{peer});
    sent.wait();
    EXPECT_EQ(in[49'999], peer);
  });
}

TEST(Session, SplitFormsGroupsByColorInKeyOrder) {
  run_ranks(6, [](Session& group) {
    Session part = group.split({.color = group.rank() % 2, .key = -group.rank()});
    EXPECT_EQ(part.size(), 3);
    EXPECT_EQ(part.rank(), 2 - group.rank() / 2);
    EXPECT_EQ(part.generation(), group.generation());
    std::vector<int> x(5, group.rank());
    part.all_reduce(Op::sum, std::span(x));
    EXPECT_EQ(x[0], group.rank() % 2 == 0 ? 0 + 2 + 4 : 1 + 3 + 5);
    group.all_reduce(Op::max, std::span(x));
    EXPECT_EQ(x[4], 9);
    Session pair = part.split({.color = part.rank() / 2});
    pair.barrier();
    EXPECT_EQ(pair.size(), part.rank() < 2 ? 2 : 1);
  });
}

TEST(Session, SplitKeepsTheReplicasOfEachRank) {
  static constexpr int kReplicas[] = {1, 3, 2};
  Hub hub;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&hub, rank] {
      SessionOptions options;
      options.replicas = kReplicas[rank];
      Session group = hub.join({.size = 3, .rank = rank, .options = options});
      Session same = group.split({});
      EXPECT_EQ(same.rank(), rank);
      EXPECT_EQ(same.replicas(), 6);
      EXPECT_EQ(same.first_replica(), group.first_replica());
      Session turned = group.split({.color = 0, .key = -rank});
      EXPECT_EQ(turned.replicas(), 6);
      EXPECT_EQ(turned.first_replica(), rank == 2 ? 0 : rank == 1 ? 2 : 5);
      for (Session* session : {&same, &turned}) {
        std::vector<Data> inputs;
        std::vector<ConstBuffer> views;
        for (int i = 0; i < kReplicas[rank]; ++i) {
          inputs.push_back(make_input(DType::float32, 3001, session->first_replica() + i));
        }
        for (Data& input : inputs) views.emplace_back(input.buffer());
        Data output(DType::float32, 3001);
        session->all_reduce(Op::sum, std::span<const ConstBuffer>(views), output.buffer());
        EXPECT_EQ(output, expected_reduction(Op::sum, DType::float32, 3001, 6));
      }
    });
  }
}

TEST(Session, TwoThreadsOfOneRankNeverInterleave) {
  // Both threads of each rank issue the same operations, so any order of tickets agrees.
  run_ranks(2, [](Session& group) {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 200; ++i) {
          std::vector<std::int64_t> x(300, 1);
          group.all_reduce(Op::sum, std::span(x));
          EXPECT_EQ(x, std::vector<std::int64_t>(300, 2));
        }
      });
    }
  });
}

TEST(Session, HistoryKeepsTheLastOperations) {
  run_ranks(2, [](Session& group) {
    for (int i = 0; i < 1100; ++i) {
      std::vector<float> x(1);
      group.all_reduce(Op::sum, std::span(x), {.name = i == 1099 ? "the last" : "x"});
    }
    const std::string history = group.history();
    EXPECT_EQ(std::count(history.begin(), history.end(), '\n'), 1024);
    EXPECT_NE(history.find("1100 done"), std::string::npos) << history.substr(history.size() - 200);
    EXPECT_NE(history.find("\"the last\""), std::string::npos);
    EXPECT_NE(history.find("session_test.cc"), std::string::npos);
    EXPECT_EQ(history.find("    76 done"), std::string::npos);
  });
}

TEST(Batch, ListsOfTensorsAreReducedWhereTheyLie) {
  run_ranks(3, [](Session& group) {
    std::vector<Data> tensors;
    std::vector<std::size_t> sizes = {1, 0, 17, 40'000, 3, 129};
    for (const std::size_t size : sizes)
      tensors.push_back(make_input(DType::float32, size, group.rank()));
    Data half = make_input(DType::bfloat16, 500, group.rank());
    auto weights = ramp(group.rank(), 77);
    Batch batch = group.batch();
    for (Data& tensor : tensors) batch.all_reduce(Op::mean, tensor.buffer());
    batch.all_reduce(Op::sum, half.buffer());
    batch.broadcast(std::span(weights), Root{2});
    batch.run();
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(tensors[i], expected_reduction(Op::mean, DType::float32, sizes[i], 3)) << i;
    }
    EXPECT_EQ(half, expected_reduction(Op::sum, DType::bfloat16, 500, 3));
    EXPECT_EQ(weights, ramp(2, 77));
    EXPECT_THROW(batch.run(), InvalidUsage);
    // One operation per kind and type.
    EXPECT_NE(group.history().find("     3 done"), std::string::npos);
    EXPECT_EQ(group.history().find("     4 done"), std::string::npos);
  });
}

TEST(Batch, RanksMayHaveSeveralReplicas) {
  SessionOptions options;
  options.replicas = 2;
  run_ranks(
      2,
      [](Session& group) {
        const std::size_t sizes[] = {3, 50'000, 0, 1};
        std::vector<std::array<Data, 2>> inputs;
        std::vector<Data> outputs;
        for (const std::size_t size : sizes) {
          inputs.push_back({make_input(DType::float32, size, group.first_replica()),
                            make_input(DType::float32, size, group.first_replica() + 1)});
          outputs.emplace_back(DType::float32, size);
        }
        Batch batch = group.batch();
        for (std::size_t i = 0; i < inputs.size(); ++i) {
          const ConstBuffer each[] = {inputs[i][0].buffer(), inputs[i][1].buffer()};
          batch.all_reduce(Op::sum, Inputs(each), outputs[i].buffer());
        }
        batch.run();
        for (const Data& output : outputs) {
          EXPECT_EQ(output, expected_reduction(Op::sum, DType::float32, output.count, 4));
        }
        EXPECT_THROW(group.batch().all_reduce(Op::sum, outputs[0].buffer()), InvalidUsage);
      },
      options);
}

TEST(Batch, WorksThroughMessagesToo) {
  SessionOptions options;
  options.algorithms = "all_reduce=halving;broadcast=tree";
  run_ranks(
      4,
      [](Session& group) {
        std::vector<Data> tensors;
        for (const std::size_t size : {50'000, 1, 30'001, 7}) {
          tensors.push_back(make_input(DType::float32, size, group.rank()));
        }
        Batch batch = group.batch();
        for (Data& tensor : tensors) batch.all_reduce(Op::sum, tensor.buffer());
        batch.run();
        for (Data& tensor : tensors) {
          EXPECT_EQ(tensor, expected_reduction(Op::sum, DType::float32, tensor.count, 4));
        }
      },
      options);
}

}  // namespace
}  // namespace lockstep::coll
