// The parts of the engine on their own: turnstile, recorder, records, planner, preferences,
// departures.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "coll/control.h"
#include "coll/departures.h"
#include "coll/planner.h"
#include "coll/recorder.h"
#include "coll/records.h"
#include "coll/turnstile.h"

namespace lockstep::coll {
namespace {

using testing::ElementsAre;

TEST(Turnstile, ServesTicketsInTheOrderTheyWereTaken) {
  Turnstile turnstile;
  std::vector<std::uint64_t> served;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const std::uint64_t ticket = turnstile.take();
        turnstile.wait(ticket, Deadline::never());
        served.push_back(ticket);  // only one at a time is here
        turnstile.pass();
      }
    });
  }
  threads.clear();
  ASSERT_EQ(served.size(), 800U);
  EXPECT_TRUE(std::is_sorted(served.begin(), served.end()));
  EXPECT_EQ(turnstile.outstanding(), 0U);
}

TEST(Turnstile, GivesUpAtTheDeadlineAndKeepsTheTicket) {
  Turnstile turnstile;
  const auto first = turnstile.take();
  const auto second = turnstile.take();
  EXPECT_FALSE(turnstile.wait(second, Deadline::after(std::chrono::milliseconds(20))));
  EXPECT_TRUE(turnstile.wait(first, Deadline::never()));
  EXPECT_EQ(turnstile.outstanding(), 2U);
  turnstile.pass();
  EXPECT_TRUE(turnstile.wait(second, Deadline::never()));
}

TEST(Recorder, CanBeReadWhileItIsWritten) {
  Recorder recorder;
  std::jthread writer([&](const std::stop_token& stop) {
    wire::Descriptor descriptor;
    while (!stop.stop_requested()) {
      ++descriptor.sequence;
      descriptor.count = descriptor.sequence;
      descriptor.kind = 0;
      descriptor.dtype = static_cast<std::uint8_t>(DType::int64);
      recorder.begin(descriptor, Here::now(), "ring");
      recorder.end(descriptor.sequence, Recorder::Outcome::done);
    }
  });
  for (int i = 0; i < 50; ++i) {
    std::istringstream lines(recorder.text());
    for (std::string line; std::getline(lines, line);) {
      // Each line is one record, not a mixture of two: its count is its number.
      const auto sequence = std::stoull(line);
      EXPECT_THAT(line, testing::HasSubstr("int64[" + std::to_string(sequence) + "]"));
    }
  }
}

void fill(Call& call, plan::Kind kind, DType dtype, std::uint64_t count) {
  call.kind = kind;
  call.dtype = dtype;
  call.count = count;
}

TEST(Planner, KeepsPlansAndForgetsTheOldOnes) {
  Planner planner(plan::Layout::uniform(2), 0, 8192, {});
  Call small;
  fill(small, plan::Kind::all_reduce, DType::float32, 4);
  Call large;
  fill(large, plan::Kind::all_reduce, DType::float32, 1 << 20);
  const auto* first = &planner.plan(small, plan::Access::shared);
  EXPECT_EQ(first, &planner.plan(small, plan::Access::shared));
  EXPECT_NE(first->algorithm, planner.plan(large, plan::Access::shared).algorithm);
  EXPECT_EQ(first, &planner.plan(small, plan::Access::shared));
  for (std::uint64_t count = 1; count < 2000; ++count) {
    Call call;
    fill(call, plan::Kind::all_reduce, DType::float32, count);
    EXPECT_GT(planner.plan(call, plan::Access::shared).plan.code.size(), 0U);
  }
}

TEST(Planner, RespectsTheSizeOfSlots) {
  for (const std::uint64_t count : {1, 100, 1000, 1024, 1025, 2000}) {
    Planner planner(plan::Layout::uniform(2), 0, 8192, {});
    Call call;
    fill(call, plan::Kind::all_reduce, DType::float64, count);
    EXPECT_LE(planner.plan(call, plan::Access::shared).plan.slot_count * 8, 8192U) << count;
  }
}

TEST(Planner, FollowsTheUsersWordWhereItApplies) {
  Planner planner(plan::Layout::uniform(4), 1, 8192,
                  preferences_of({.algorithms = "all_reduce=direct:0-64K,halving:64K-"}));
  Call small;
  fill(small, plan::Kind::all_reduce, DType::float32, 100);
  EXPECT_EQ(planner.plan(small, plan::Access::shared).algorithm->name, "direct");
  Call large;
  fill(large, plan::Kind::all_reduce, DType::float32, 1 << 20);
  EXPECT_EQ(planner.plan(large, plan::Access::shared).algorithm->name, "halving");
}

TEST(Planner, MeasuredCostsChangeTheChoice) {
  // Four ranks that exchange messages: few of them where each is dear, short ways where bytes are.
  const auto chosen = [](const char* costs) {
    Planner planner(plan::Layout::uniform(4), 0, 8192, preferences_of({.costs = costs}));
    Call call;
    fill(call, plan::Kind::all_reduce, DType::float32, 1 << 16);
    return planner.plan(call, plan::Access::messages).algorithm->name;
  };
  EXPECT_EQ(chosen("tcp.alpha=5000"), "doubling");
  EXPECT_EQ(chosen("tcp.alpha=0.001"), "direct");
}

TEST(Preferences, TheEnvironmentFillsInAndIsNamedWhereItIsWrong) {
  Environment surroundings;
  surroundings.costs = "tcp.alpha=7";
  surroundings.algorithms = "all_reduce=direct";
  EXPECT_EQ(preferences_of({}, surroundings).costs.tcp.alpha_us, 7);
  EXPECT_EQ(preferences_of({.costs = "tcp.alpha=8"}, surroundings).costs.tcp.alpha_us, 8);

  const auto refusal = [&](const SessionOptions& options) -> std::string {
    try {
      preferences_of(options, surroundings);
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "accepted";
  };
  surroundings.costs = "tcp.alpha=cheap";
  EXPECT_THAT(refusal({}), testing::HasSubstr("LOCKSTEP_COSTS=tcp.alpha=cheap: "));
  EXPECT_EQ(refusal({.costs = "tcp.alpha=8"}), "accepted");
  surroundings.algorithms = "all_reduce=magic";
  EXPECT_THAT(refusal({.costs = "tcp.alpha=8"}),
              testing::HasSubstr("LOCKSTEP_ALGORITHMS=all_reduce=magic: "));
  EXPECT_THROW(preferences_of({.costs = "tcp.alpha=cheap"}, surroundings), InvalidUsage);
}

TEST(Records, AFailureIsReportedOnceWithTheOperationsOfAllGroups) {
  const std::filesystem::path directory =
      std::filesystem::temp_directory_path() / ("lockstep-records-" + std::to_string(getpid()));
  std::filesystem::create_directory(directory);
  Records records(3, directory);
  const auto group = [](std::vector<int> members, Purpose purpose) {
    GroupSpec spec;
    spec.members = std::move(members);
    spec.purpose = purpose;
    return spec;
  };
  const auto world = records.add(group({0, 1, 2, 3}, Purpose::collectives));
  const auto pair = records.add(group({3, 1}, Purpose::messages));
  wire::Descriptor descriptor;
  descriptor.sequence = 1;
  descriptor.kind = static_cast<std::uint8_t>(plan::Kind::barrier);
  world->begin(descriptor, Here::now(), "direct");
  descriptor.kind = static_cast<std::uint8_t>(plan::Kind::send_receive);
  pair->begin(descriptor, Here::now(), "direct");
  pair->end(1, Recorder::Outcome::done);

  const auto written = [&] {
    std::ifstream file(directory / ("history-rank3-pid" + std::to_string(getpid()) + "-1.txt"));
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  records.report({ErrorKind::peer_lost, Code::unavailable, "rank 2 is gone"}, *world);
  EXPECT_THAT(written(), testing::StartsWith("rank 2 is gone\n"));
  EXPECT_THAT(written(), testing::HasSubstr("ranks 0, 1, 2, 3:\n     1 under way barrier by"));
  EXPECT_THAT(written(), testing::HasSubstr("messages from rank 3 to rank 1:\n     1 done"));
  const std::string first = written();
  records.report({ErrorKind::timeout, Code::deadline_exceeded, "later"}, *pair);
  EXPECT_EQ(written(), first) << "the first cause counts";
  std::filesystem::remove_all(directory);
}

TEST(ControlPeers, AreRankZeroAndTheNeighbours) {
  EXPECT_THAT(control_peers(0, 1), ElementsAre());
  EXPECT_THAT(control_peers(0, 2), ElementsAre(1));
  EXPECT_THAT(control_peers(1, 2), ElementsAre(0));
  EXPECT_THAT(control_peers(0, 5), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(control_peers(1, 5), ElementsAre(0, 2));
  EXPECT_THAT(control_peers(2, 5), ElementsAre(0, 1, 3));
  EXPECT_THAT(control_peers(4, 5), ElementsAre(0, 3));
  for (int size = 1; size < 9; ++size) {
    for (int a = 0; a < size; ++a) {
      const auto of_a = control_peers(a, size);
      for (const int b : of_a) {
        const auto of_b = control_peers(b, size);
        EXPECT_TRUE(std::find(of_b.begin(), of_b.end(), a) != of_b.end());
      }
    }
  }
}

TEST(Departures, TheOldestAreForgotten) {
  Departures departures(2);
  constexpr std::uint64_t kMany = 100'000;
  for (std::uint64_t i = 1; i <= kMany; ++i) {
    EXPECT_TRUE(departures.note({.rank = 1, .number = i, .group = i, .next = i + 1}));
    EXPECT_FALSE(departures.note({.rank = 1, .number = i, .group = i, .next = i + 1})) << "known";
  }
  EXPECT_EQ(departures.first_missed(kMany, 1), kMany + 1);
  EXPECT_FALSE(departures.first_missed(1, 1).has_value());
  EXPECT_FALSE(departures.note({.rank = 2, .number = 1})) << "nobody";
}

}  // namespace
}  // namespace lockstep::coll
