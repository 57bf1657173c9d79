// The rest of what a session promises, as far as MPI can keep it.
#include <gmock/gmock.h>

#include <numeric>
#include <thread>

#include "tests/engines/mpi/group.h"

namespace lockstep::coll {
namespace {

using ::testing::HasSubstr;

TEST(MpiSession, SaysWhatItIs) {
  Session group = make_group();
  EXPECT_EQ(group.transport(), "mpi");
  EXPECT_LT(group.rank(), group.size());
  EXPECT_EQ(group.replicas(), group.size());
  for (int rank = 0; rank < group.size(); ++rank) EXPECT_EQ(group.host(rank), group.host(0));
  Session again = make_group();
  EXPECT_GT(again.generation(), group.generation());
  again.barrier();
  group.barrier();
}

TEST(MpiSession, BroadcastFromEveryRoot) {
  Session group = make_group();
  for (const DType dtype : kAllTypes) {
    for (int root = 0; root < group.size(); ++root) {
      Data mine = make_input(dtype, 1001, group.rank());
      group.broadcast(mine.buffer(), Root{root});
      EXPECT_TRUE(mine == make_input(dtype, 1001, root)) << to_string(dtype);
    }
  }
}

TEST(MpiSession, GathersAndScattersRaggedParts) {
  Session group = make_group();
  const int n = group.size();
  std::vector<std::uint64_t> counts;
  std::vector<std::int32_t> all;
  for (int rank = 0; rank < n; ++rank) {
    counts.push_back(static_cast<std::uint64_t>(rank) * 3);  // rank 0 has nothing
    const auto part = ramp(rank, counts.back());
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
}

TEST(MpiSession, GathersAndScattersEqualPartsOfEveryType) {
  Session group = make_group();
  const auto n = static_cast<std::size_t>(group.size());
  for (const DType dtype : kAllTypes) {
    Data mine = make_input(dtype, 11, group.rank());
    Data all(dtype, 11 * n);
    group.all_gather(ConstBuffer(mine.buffer()), all.buffer());
    Data at_last(dtype, group.rank() == group.size() - 1 ? 11 * n : 0);
    group.gather(ConstBuffer(mine.buffer()), at_last.buffer(), Root{group.size() - 1});
    Data back(dtype, 11);
    group.scatter(ConstBuffer(all.buffer()), back.buffer(), Root{0});
    EXPECT_TRUE(back == mine) << to_string(dtype);
    for (std::size_t rank = 0; rank < n; ++rank) {
      const Data expected = make_input(dtype, 11, static_cast<int>(rank));
      const std::size_t bytes = expected.bytes.size();
      EXPECT_EQ(0, std::memcmp(all.bytes.data() + rank * bytes, expected.bytes.data(), bytes));
      if (at_last.count > 0) {
        EXPECT_EQ(0,
                  std::memcmp(at_last.bytes.data() + rank * bytes, expected.bytes.data(), bytes));
      }
    }
  }
}

TEST(MpiSession, AllToAllTransposes) {
  Session group = make_group();
  const int n = group.size();
  std::vector<std::int32_t> input;
  for (int to = 0; to < n; ++to) {
    for (int i = 0; i < 3; ++i) input.push_back(group.rank() * 10'000 + to * 10 + i);
  }
  std::vector<std::int32_t> output(input.size());
  group.all_to_all(std::span(input), std::span(output));
  for (int from = 0; from < n; ++from) {
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(output[static_cast<std::size_t>(from * 3 + i)],
                from * 10'000 + group.rank() * 10 + i);
    }
  }
}

TEST(MpiSession, OneRankAloneMayUseOneBufferForBoth) {
  Session group = make_group();
  Session alone = group.split({.color = group.rank()});
  ASSERT_EQ(alone.size(), 1);
  auto x = ramp(3, 10);
  alone.all_gather(std::span(x), std::span(x));
  alone.gather(std::span(x), std::span(x), Root{0});
  alone.scatter(std::span(x), std::span(x), Root{0});
  alone.all_to_all(std::span(x), std::span(x));
  alone.reduce_scatter(Op::sum, std::span(x), std::span(x));
  alone.all_reduce(Op::sum, std::span(x));
  EXPECT_EQ(x, ramp(3, 10));
}

TEST(MpiSession, AsynchronousOperationsRunInOrder) {
  Session group = make_group();
  std::vector<std::vector<float>> tensors(20, std::vector<float>(1000));
  std::vector<Work> works;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::fill(tensors[i].begin(), tensors[i].end(), static_cast<float>(i + 1));
    works.push_back(group.start_all_reduce(Op::sum, std::span(tensors[i])));
  }
  std::vector<float> last(10, 1);
  group.all_reduce(Op::sum, std::span(last));  // behind all of them
  const auto n = static_cast<float>(group.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    works[i].wait();
    EXPECT_TRUE(works[i].done());
    EXPECT_EQ(tensors[i][999], n * static_cast<float>(i + 1));
  }
  EXPECT_EQ(last[0], n);
}

TEST(MpiSession, SplitFormsGroupsByColorInKeyOrder) {
  Session group = make_group();
  Session part = group.split({.color = group.rank() % 2, .key = -group.rank()});
  const int n = group.size();
  const int in_part = group.rank() % 2 == 0 ? (n + 1) / 2 : n / 2;
  EXPECT_EQ(part.size(), in_part);
  EXPECT_EQ(part.rank(), in_part - 1 - group.rank() / 2);
  EXPECT_EQ(part.generation(), group.generation());
  std::vector<int> members(static_cast<std::size_t>(in_part));
  const std::vector<int> me = {group.rank()};
  part.all_gather(std::span(me), std::span(members));
  EXPECT_TRUE(std::is_sorted(members.rbegin(), members.rend()));
  std::vector<int> x(5, group.rank());
  group.all_reduce(Op::max, std::span(x));
  EXPECT_EQ(x[4], n - 1);
  Session pair = part.split({.color = part.rank() / 2});
  pair.barrier();
}

TEST(MpiSession, ManySplitsDoNotUseUpCommunicators) {
  Session group = make_group();
  if (group.size() > 2) return;     // making one spins: long with more ranks than cores
  for (int i = 0; i < 3000; ++i) {  // MPICH has some 2,000
    Session same = group.split({.color = 0});
    if (i % 500 == 0) same.barrier();
  }
}

TEST(MpiSession, TwoThreadsOfOneRankNeverInterleave) {
  Session group = make_group();
  std::vector<std::jthread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        std::vector<std::int64_t> x(300, 1);
        group.all_reduce(Op::sum, std::span(x));
        EXPECT_EQ(x, std::vector<std::int64_t>(300, group.size()));
      }
    });
  }
}

TEST(MpiSession, HistoryNamesTheEngineAndTheCallSite) {
  Session group = make_group();
  std::vector<float> x(3);
  group.all_reduce(Op::sum, std::span(x), {.name = "the only"});
  EXPECT_THAT(group.history(),
              HasSubstr("1 done      all_reduce sum float32[3] \"the only\" by mpi"));
  EXPECT_THAT(group.history(), HasSubstr("session_test.cc"));
}

TEST(MpiSession, MemoryOfTheSessionIsZeroed) {
  Session group = make_group();
  Memory memory = group.allocate(4096);
  std::span<std::int32_t> x = memory.as<std::int32_t>();
  EXPECT_EQ(std::accumulate(x.begin(), x.end(), 0), 0);
  x[7] = 1;
  group.all_reduce(Op::sum, x);
  EXPECT_EQ(x[7], group.size());
}

/// What this rank throws: all throw it, with the same table, before any data is touched.
std::string mismatch_of(const std::function<void(Session&)>& function,
                        const std::vector<int>& culprits) {
  Session group = make_group();
  group.barrier();
  try {
    function(group);
    ADD_FAILURE() << "rank " << group.rank() << " noticed nothing";
    return {};
  } catch (const Mismatch& error) {
    EXPECT_EQ(error.culprits(), culprits);
    EXPECT_THROW(group.barrier(), Mismatch);
    EXPECT_THROW(group.check(), Mismatch);
    return error.what();
  }
}

TEST(MpiMismatch, EveryRankGetsTheTable) {
  if (Session group = make_group(); group.size() < 3) return;  // nobody to agree, or no majority
  std::vector<float> x(10, 5);
  const std::string text = mismatch_of(
      [&](Session& group) {
        const std::size_t count = group.rank() == 1 ? 9 : 10;
        group.all_reduce(Op::sum, std::span(x).first(count), {.name = "conv"});
      },
      {1});
  EXPECT_THAT(text, HasSubstr("all_reduce sum float32[9] \"conv\""));
  EXPECT_THAT(text, HasSubstr("all_reduce sum float32[10] \"conv\""));
  EXPECT_EQ(x, std::vector<float>(10, 5));
}

TEST(MpiMismatch, OfEveryPartOfARequest) {
  if (Session group = make_group(); group.size() < 3) return;
  std::vector<float> x(12, 5);
  std::vector<int> y(12, 5);
  const auto odd = [](const Session& group) { return group.rank() == 2; };
  mismatch_of([&](Session& g) { g.all_reduce(odd(g) ? Op::max : Op::min, std::span(x)); }, {2});
  mismatch_of(
      [&](Session& g) {
        odd(g) ? g.broadcast(std::span(y), Root{0}) : g.broadcast(std::span(x), Root{0});
      },
      {2});
  mismatch_of([&](Session& g) { g.broadcast(std::span(x), Root{odd(g) ? 1 : 0}); }, {2});
  mismatch_of([&](Session& g) { odd(g) ? g.barrier() : g.broadcast(std::span(x), Root{0}); }, {2});
  mismatch_of(
      [&](Session& g) {
        const std::int64_t shapes[] = {3, 4};
        const std::int64_t turned[] = {4, 3};
        g.all_reduce(Op::sum, std::span(x), {.shape = odd(g) ? turned : shapes});
      },
      {2});
  mismatch_of(
      [&](Session& g) {
        std::vector<std::uint64_t> counts(static_cast<std::size_t>(g.size()), 1);
        counts[odd(g) ? 0 : 1] = 2;
        std::vector<int> all(static_cast<std::size_t>(g.size()) + 1);
        const auto mine = counts[static_cast<std::size_t>(g.rank())];
        g.all_gather(std::span(y).first(mine), std::span(all), counts);
      },
      {2});
}

}  // namespace
}  // namespace lockstep::coll
