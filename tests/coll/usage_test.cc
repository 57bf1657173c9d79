// Wrong calls are refused before anything is sent, saying which argument and what it should be; the
// group works on afterwards.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>

#include "tests/coll/fixtures.h"

namespace lockstep::coll {
namespace {

using testing::HasSubstr;

class Usage : public testing::Test {
 protected:
  /// One rank makes the wrong call, then both make a right one.
  void refuses(const std::function<void(Session&)>& wrong, const char* words) {
    run_ranks(2, [&](Session& group) {
      if (group.rank() == 0) {
        try {
          wrong(group);
          ADD_FAILURE() << "accepted; expected: " << words;
        } catch (const InvalidUsage& e) {
          EXPECT_THAT(e.what(), HasSubstr(words));
          EXPECT_EQ(e.code(), Code::invalid_argument);
        }
      }
      std::vector<int> x(10, 1);
      group.all_reduce(Op::sum, std::span(x));
      EXPECT_EQ(x[9], 2);
    });
  }

  std::vector<float> f4 = std::vector<float>(4);
  std::vector<float> f5 = std::vector<float>(5);
  std::vector<float> f8 = std::vector<float>(8);
  std::vector<double> d4 = std::vector<double>(4);
  std::vector<int> i4 = std::vector<int>(4);
};

TEST_F(Usage, ElementTypesDiffer) {
  refuses([&](Session& g) { g.all_reduce(Op::sum, std::span(f4), std::span(d4)); },
          "input is float32[4] but output is float64[4]");
}
TEST_F(Usage, CountsDiffer) {
  refuses([&](Session& g) { g.all_reduce(Op::sum, std::span(f4), std::span(f5)); },
          "output has 5 elements; it needs 4");
  refuses([&](Session& g) { g.all_gather(std::span(f4), std::span(f5)); }, "it needs 8");
  refuses([&](Session& g) { g.reduce_scatter(Op::sum, std::span(f5), std::span(f4)); },
          "cannot share equally: give counts");
  refuses([&](Session& g) { g.all_to_all(std::span(f5), std::span(f5)); }, "overlap");
}
TEST_F(Usage, CountsTableOfTheWrongSize) {
  const std::vector<std::uint64_t> three = {1, 2, 3};
  refuses([&](Session& g) { g.all_gather(std::span(f4), std::span(f8), three); },
          "counts has 3 entries; the group has 2 ranks");
  const std::vector<std::uint64_t> other = {1, 7};
  refuses([&](Session& g) { g.all_gather(std::span(f4), std::span(f8), other); },
          "input has 4 elements; it needs 1");
}
TEST_F(Usage, RootOutOfRange) {
  refuses([&](Session& g) { g.broadcast(std::span(f4), Root{2}); },
          "root is rank 2; the group has ranks 0 to 1");
  refuses([&](Session& g) { g.broadcast(std::span(f4), Root{-1}); }, "root is rank -1");
}
TEST_F(Usage, MessagesToOneselfOrNobody) {
  refuses([&](Session& g) { g.send(std::span(f4), To{0}); }, "the caller itself");
  refuses([&](Session& g) { g.receive(std::span(f4), From{5}); }, "from is rank 5");
}
TEST_F(Usage, NullPointers) {
  refuses([&](Session& g) { g.all_reduce(Op::sum, Buffer(DType::float32, nullptr, 4)); },
          "null pointer with 4 elements");
}
TEST_F(Usage, PartialOverlap) {
  refuses(
      [&](Session& g) {
        g.all_reduce(Op::sum, std::span(f8).subspan(0, 4), std::span(f8).subspan(2, 4));
      },
      "input and output overlap");
}
TEST_F(Usage, OpsThatDoNotExistForAType) {
  refuses([&](Session& g) { g.all_reduce(Op::mean, std::span(i4)); }, "int32");
  bool flags[4] = {};
  refuses([&](Session& g) { g.all_reduce(Op::sum, std::span(flags)); }, "bool");
  std::vector<std::complex<float>> c(3);
  refuses([&](Session& g) { g.all_reduce(Op::max, std::span(c)); }, "complex64");
}
TEST_F(Usage, AsManyInputsAsReplicas) {
  const std::vector<ConstBuffer> two(2, ConstBuffer(std::span(f4)));
  refuses(
      [&](Session& g) { g.all_reduce(Op::sum, std::span<const ConstBuffer>(two), std::span(f4)); },
      "2 input buffer(s) given, but this rank has 1 replica(s)");
}
TEST_F(Usage, NegativeTimeout) {
  refuses([&](Session& g) { g.barrier({.timeout = std::chrono::nanoseconds(-1)}); }, "timeout");
}
TEST_F(Usage, OnlySumsOfFloat32TravelAsSomethingElse) {
  const CallOptions rounded{.wire = WireType::bf16};
  refuses([&](Session& g) { g.all_reduce(Op::max, std::span(f4), rounded); },
          "wire is bfloat16, which is for all_reduce with sum or mean of float32; this is "
          "all_reduce max float32");
  refuses([&](Session& g) { g.all_reduce(Op::sum, std::span(d4), {.wire = WireType::f16}); },
          "wire is float16, which is for all_reduce with sum or mean of float32; this is "
          "all_reduce sum float64");
  refuses([&](Session& g) { (void)g.start_broadcast(std::span(f4), Root{0}, rounded); },
          "this is broadcast float32");
  refuses([&](Session& g) { g.reduce_scatter(Op::sum, std::span(f8), std::span(f4), {}, rounded); },
          "this is reduce_scatter sum float32");
  refuses([&](Session& g) { g.barrier(rounded); }, "this is barrier");
  refuses(
      [&](Session& g) {
        Batch batch = g.batch();
        batch.all_reduce(Op::sum, std::span(f4));
        batch.all_reduce(Op::sum, std::span(i4));
        batch.run(rounded);
      },
      "this is all_reduce sum int32");
}
TEST_F(Usage, EqualCountsMayBeGivenOrNot) {
  run_ranks(2, [](Session& group) {
    const std::vector<int> mine(3, group.rank());
    std::vector<int> all(6);
    const std::vector<std::uint64_t> counts = {3, 3};
    group.all_gather(std::span(mine), std::span(all),
                     group.rank() == 0 ? Counts(counts) : Counts());
    EXPECT_EQ(all, (std::vector<int>{0, 0, 0, 1, 1, 1}));
  });
}
TEST_F(Usage, ABatchCannotBeUsedTwice) {
  refuses(
      [&](Session& g) {
        Batch batch = g.batch();
        batch.run();
        batch.all_reduce(Op::sum, std::span(f4));
      },
      "run already");
}
TEST_F(Usage, NegativeColor) {
  refuses([&](Session& g) { static_cast<void>(g.split({.color = -1})); }, "color is -1");
}
TEST_F(Usage, RefusedInTheAsynchronousCallItself) {
  refuses([&](Session& g) { static_cast<void>(g.start_broadcast(std::span(f4), Root{9})); },
          "root is rank 9");
}

TEST(JoinUsage, BadSeats) {
  Hub hub;
  EXPECT_THROW(static_cast<void>(hub.join({.size = 0, .rank = 0})), InvalidUsage);
  EXPECT_THROW(static_cast<void>(hub.join({.size = 2, .rank = 2})), InvalidUsage);
  EXPECT_THROW(static_cast<void>(hub.join({.size = 2})), InvalidUsage);
  SessionOptions none;
  none.replicas = 0;
  EXPECT_THROW(static_cast<void>(hub.join({.size = 1, .rank = 0, .options = none})), InvalidUsage);
  SessionOptions odd;
  odd.algorithms = "all_reduce=carrier_pigeon";
  EXPECT_THROW(static_cast<void>(hub.join({.size = 1, .rank = 0, .options = odd})), InvalidUsage);
  SessionOptions dear;
  dear.costs = "pigeon.alpha=1";
  EXPECT_THROW(static_cast<void>(hub.join({.size = 1, .rank = 0, .options = dear})), InvalidUsage);
  EXPECT_THROW(run_ranks(0, [](Session&) {}), InvalidUsage);
}

TEST(JoinUsage, ATakenRankIsRefusedAndTheOthersGoOn) {
  Hub hub;
  std::atomic<int> refused = 0;
  std::vector<std::jthread> both;
  for (int i = 0; i < 2; ++i) {
    both.emplace_back([&] {
      try {
        Session group = hub.join({.size = 2, .rank = 0});
        group.barrier();
      } catch (const InvalidUsage& e) {
        EXPECT_THAT(e.what(), HasSubstr("rank 0 has joined already"));
        refused.fetch_add(1);
        Session group = hub.join({.size = 2, .rank = 1});
        group.barrier();
      }
    });
  }
  both.clear();
  EXPECT_EQ(refused.load(), 1);
}

/// D6: a child has neither the threads nor the place of its parent.
TEST(ForkedChild, IsRefusedAndHurtsNobody) {
  Session group = Hub().join({.size = 1, .rank = 0, .options = {}});
  std::vector<float> x(4, 1.0F);
  Work before = group.start_all_reduce(Op::sum, std::span(x));
  before.wait();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    const std::function<void()> calls[] = {
        [&] { group.all_reduce(Op::sum, std::span(x)); },
        [&] { group.all_reduce(Op::sum, std::span(x), {.name = "x"}); },
        [&] { (void)group.start_barrier(); },
        [&] { group.barrier(); },
        [&] { (void)group.allocate(16); },
        [&] { (void)group.split({.color = 0, .key = 0}); },
        [&] {
          Batch batch = group.batch();
          batch.all_reduce(Op::sum, std::span(x));
          batch.run();
        },
        [&] { group.check(); },
        [&] { before.wait(); },
    };
    int refused = 0;
    for (const auto& call : calls) {
      try {
        call();
      } catch (const InvalidUsage& error) {
        refused += error.code() == Code::failed_precondition ? 1 : 0;
      }
    }
    group.abort("for nobody");
    { const Session gone = std::move(group); }
    // A group of its own is another matter.
    Hub().join({.size = 1, .rank = 0, .options = {}}).barrier();
    ::_exit(refused);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 9);
  group.all_reduce(Op::sum, std::span(x));
  EXPECT_EQ(x[0], 1.0F);
}

TEST(ClosedSession, LeavesAndRefusesEverything) {
  run_ranks(3, [](Session& group) {
    std::vector<float> x(4, 1);
    if (group.rank() > 0) {
      try {
        // Who is still in the first one when another asks for the second is told so there.
        for (int i = 0; i < 2; ++i) group.all_reduce(Op::sum, std::span(x));
        ADD_FAILURE();
      } catch (const PeerLost& lost) {
        EXPECT_THAT(lost.culprits(), testing::ElementsAre(0));
      }
      return;
    }
    group.all_reduce(Op::sum, std::span(x));
    group.close();
    group.close();
    EXPECT_EQ(group.size(), 3);
    const std::vector<std::function<void()>> calls = {
        [&] { group.all_reduce(Op::sum, std::span(x)); },
        [&] { group.barrier(); },
        [&] { group.start_barrier().wait(); },
        [&] { group.send(std::span(x), To{1}); },
        [&] { static_cast<void>(group.split({})); },
        [&] { static_cast<void>(group.allocate(8)); }};
    for (const auto& call : calls) {
      try {
        call();
        ADD_FAILURE();
      } catch (const InvalidUsage& error) {
        EXPECT_THAT(error.what(), HasSubstr("the session is closed"));
        EXPECT_EQ(error.code(), Code::failed_precondition);
      }
    }
  });
}

/// Another thread leaves while this one is between two operations, or in one.
TEST(ClosedSession, BesideAnotherThreadsCalls) {
  for (int round = 0; round < 40; ++round) {
    run_ranks(2, [&](Session& group) {
      std::jthread closer;
      if (group.rank() == 0) {
        closer = std::jthread([&] {
          std::this_thread::sleep_for(std::chrono::microseconds(20 * round));
          group.close();
        });
      }
      std::vector<float> x(256, 1);
      try {
        while (round % 2 == 0) group.start_all_reduce(Op::max, std::span(x)).wait();
        for (;;) group.all_reduce(Op::max, std::span(x));
      } catch (const InvalidUsage& error) {
        EXPECT_EQ(group.rank(), 0);
        EXPECT_THAT(error.what(), HasSubstr("the session is closed"));
      } catch (const Error& error) {
        EXPECT_THAT(error.culprits(), testing::ElementsAre(0)) << error.what();
      }
    });
  }
}

}  // namespace
}  // namespace lockstep::coll
