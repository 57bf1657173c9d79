// Behavioural cases of TensorFlow's collective runtime, by their numbers in the semantics
// reference.
#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <mutex>
#include <optional>
#include <thread>

#include "tests/coll/fixtures.h"

namespace lockstep::coll {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

/// Ring reduce, then divide: every device holds the mean, for 2 to 16 devices and ragged lengths.
TEST(Case82, RingReduceGivesTheMeanOnEveryDevice) {
  SessionOptions ring;
  ring.algorithms = "all_reduce=ring";
  for (int devices = 2; devices <= 16; ++devices) {
    run_ranks(
        devices,
        [&](Session& group) {
          std::vector<std::size_t> lengths = {1, 2, 8, 16, 128, 1001, 4095, 4096, 9408};
          // Long enough that each part travels in several chunks.
          if (devices == 2 || devices == 8 || devices == 16) lengths.push_back(1'045'991);
          for (const std::size_t length : lengths) {
            std::vector<double> x(length);
            std::vector<std::int64_t> y(length);
            for (std::size_t i = 0; i < length; ++i) {
              x[i] = std::pow(10.0, group.rank()) * static_cast<double>(i);
              y[i] = 10L * group.rank() + static_cast<std::int64_t>(i);
            }
            group.all_reduce(Op::mean, std::span(x), {.order = SumOrder::any});
            group.all_reduce(Op::sum, std::span(y), {.order = SumOrder::any});
            double factor = 0;
            for (int d = 0; d < devices; ++d) factor += std::pow(10.0, d);
            for (std::size_t i = 0; i < length; ++i) {
              const double mean = factor * static_cast<double>(i) / devices;
              ASSERT_NEAR(x[i], mean, 1e-12 * mean);
              // Integers: the sum, divided by the caller.
              const std::int64_t sum =
                  10 * devices * (devices - 1) / 2 + devices * static_cast<std::int64_t>(i);
              ASSERT_EQ(y[i] / devices, sum / devices);
            }
          }
          EXPECT_THAT(group.history(), HasSubstr("by ring"));
        },
        ring);
  }
}

TEST(Case82, AfterAnInjectedFailureEveryDeviceReportsIt) {
  SessionOptions ring;
  ring.algorithms = "all_reduce=ring";
  const auto thrown = outcomes(
      5,
      [](Session& group) {
        std::vector<float> x(4096);
        group.all_reduce(Op::mean, std::span(x), {.order = SumOrder::any});
        if (group.rank() == 3) group.abort("Deliberate failure");
        group.all_reduce(Op::mean, std::span(x), {.order = SumOrder::any});
      },
      ring);
  for (const auto& e : thrown) {
    ASSERT_NE(as<Cancelled>(e), nullptr);
    EXPECT_THAT(as<Cancelled>(e)->what(), HasSubstr("Deliberate failure"));
  }
}

TEST(Case87, RanksFollowTheOrderOfDeviceNames) {
  Hub hub;
  std::vector<std::jthread> threads;
  for (const int device : {2, 0, 1}) {
    threads.emplace_back([&hub, device] {
      Session group = hub.join({.size = 3, .member = "CPU:" + std::to_string(device)});
      EXPECT_EQ(group.rank(), device);
      EXPECT_EQ(group.size(), 3);
      group.barrier();
    });
  }
}

TEST(Case87, ABroadcastWithoutASourceIsRefusedEverywhere) {
  const auto thrown = outcomes(3, [](Session& group) {
    std::vector<float> x(4);
    group.broadcast(std::span(x), Root{(group.rank() + 1) % 3});
  });
  for (const auto& e : thrown) {
    ASSERT_NE(as<Mismatch>(e), nullptr);
    EXPECT_EQ(as<Mismatch>(e)->code(), Code::internal);
    EXPECT_THAT(as<Mismatch>(e)->what(), HasSubstr("found no source"));
    EXPECT_THAT(as<Mismatch>(e)->what(), HasSubstr("group_size=3 BcastRecvs=3"));
  }
}

TEST(Case89, AnAbortReachesThoseWhoWaitForTheGroup) {
  Hub hub;
  std::jthread waiting([&] {
    try {
      static_cast<void>(hub.join({.size = 2, .rank = 0}));
      ADD_FAILURE();
    } catch (const Cancelled& e) {
      EXPECT_THAT(e.what(), HasSubstr("enough"));
      EXPECT_EQ(e.code(), Code::cancelled);
    }
  });
  hub.abort("enough");
  waiting.join();
  EXPECT_THROW(static_cast<void>(hub.join({.size = 2, .rank = 1})), Cancelled);
}

TEST(Case89, AnAbortReachesThoseWhoWaitForAnOperationAndLaterCalls) {
  outcomes(3, [](Session& group) {
    if (group.rank() == 2) {
      group.abort("peer restarted");
      EXPECT_THROW(group.barrier(), Cancelled);  // before starting
    } else {
      EXPECT_THROW(group.barrier(), Cancelled);  // while waiting
    }
    std::vector<float> x(3);
    EXPECT_THROW(group.all_reduce(Op::sum, std::span(x)), Cancelled);
    try {
      group.check();
      ADD_FAILURE();
    } catch (const Cancelled& e) {
      EXPECT_THAT(e.what(), HasSubstr("peer restarted"));
    }
  });
}

TEST(Case90, MeansMaximaAndMinima) {
  run_ranks(2, [](Session& group) {
    const bool first = group.rank() == 0;
    std::vector<float> x;
    std::vector<Float16> h;
    for (int i = 0; i < 8; ++i) {
      x.push_back(static_cast<float>(i) + (first ? 0.1F : 0.3F));
      h.push_back(kernel::to_float16(x.back()));
    }
    group.all_reduce(Op::mean, std::span(x));
    group.all_reduce(Op::mean, std::span(h));
    for (int i = 0; i < 8; ++i) {
      EXPECT_NEAR(x[i], static_cast<float>(i) + 0.2F, 1e-6);
      EXPECT_NEAR(kernel::to_float(h[i]), static_cast<float>(i) + 0.2F, i < 2 ? 1e-3 : 4e-3);
    }
    float scalar = first ? 0.1F : 0.3F;
    group.all_reduce(Op::mean, std::span(&scalar, 1));
    EXPECT_NEAR(scalar, 0.2F, 1e-7);

    const std::vector<float> a = {1, 20, 3, 40, 5};
    const std::vector<float> b = {10, 2, 30, 4, 50};
    std::vector<float> most = first ? a : b;
    std::vector<float> least = first ? a : b;
    group.all_reduce(Op::max, std::span(most));
    group.all_reduce(Op::min, std::span(least));
    EXPECT_EQ(most, (std::vector<float>{10, 20, 30, 40, 50}));
    EXPECT_EQ(least, (std::vector<float>{1, 2, 3, 4, 5}));
  });
}

TEST(Case92, AGroupOfOneReturnsTheInput) {
  run_ranks(1, [](Session& group) {
    const std::vector<float> input = {1, 2, 3};
    std::vector<float> reduced(3);
    std::vector<float> gathered(3);
    group.all_reduce(Op::mean, std::span(input), std::span(reduced));
    group.all_gather(std::span(input), std::span(gathered));
    EXPECT_EQ(reduced, input);
    EXPECT_EQ(gathered, input);
  });
}

TEST(Case93, DifferentSizesUnderOneGroupName) {
  Hub hub;
  std::vector<std::jthread> threads;
  std::atomic<int> failed = 0;
  for (const int size : {2, 3}) {
    threads.emplace_back([&, size] {
      try {
        static_cast<void>(hub.join({.group = "g", .size = size, .rank = size - 2}));
        ADD_FAILURE();
      } catch (const InternalError& e) {
        EXPECT_THAT(e.what(), HasSubstr("but that group has size"));
        EXPECT_EQ(e.code(), Code::internal);
        failed.fetch_add(1);
      }
    });
  }
  threads.clear();
  EXPECT_EQ(failed.load(), 2);
  EXPECT_THROW(static_cast<void>(hub.join({.group = "g", .size = 2, .rank = 1})), InternalError);
}

TEST(Case95, ASizeOneTooLargeTimesOut) {
  Hub hub;
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        static_cast<void>(hub.join({.size = 3, .rank = rank, .timeout = 4500ms}));
        ADD_FAILURE();
      } catch (const Timeout& e) {
        EXPECT_EQ(e.code(), Code::deadline_exceeded);
        EXPECT_THAT(e.what(), HasSubstr("waiting for other workers"));
        EXPECT_THAT(e.what(), HasSubstr("rank 2 missing"));
      }
    });
  }
  threads.clear();
  EXPECT_GE(std::chrono::steady_clock::now() - start, 4500ms);
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Session group = hub.join({.size = 2, .rank = rank, .timeout = 4500ms});
      group.barrier({.timeout = 4500ms});
    });
  }
}

TEST(Case96, AnEngineThatIsNotBuiltGivesOneWarningAndTheHostsResult) {
  std::vector<std::string> warnings;
  std::mutex mutex;
  set_log_sink([&](LogLevel, std::string_view text) {
    const std::lock_guard lock(mutex);
    warnings.emplace_back(text);
  });
  SessionOptions nccl;
  nccl.engine = Engine::nccl;
  run_ranks(
      2,
      [](Session& group) {
        std::vector<float> x = {1, 2};
        group.all_reduce(Op::sum, std::span(x));
        EXPECT_EQ(x, (std::vector<float>{2, 4}));
      },
      nccl);
  set_log_sink({});
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("nccl engine is not built"));
}

TEST(Case96, BroadcastsOfFloatsAndBooleans) {
  run_ranks(3, [](Session& group) {
    std::vector<float> x =
        group.rank() == 0 ? std::vector<float>{0.1F, 1.1F} : std::vector<float>(2);
    group.broadcast(std::span(x), Root{0});
    EXPECT_EQ(x, (std::vector<float>{0.1F, 1.1F}));
    bool flags[2] = {group.rank() == 1, false};
    group.broadcast(std::span(flags), Root{1});
    EXPECT_TRUE(flags[0]);
    EXPECT_FALSE(flags[1]);
  });
}

}  // namespace
}  // namespace lockstep::coll
