// Messages of a group whose session the other rank has closed: the pair of them has a group of its
// own, which that rank may never have made.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string_view>
#include <thread>

#include "tests/coll/fixtures.h"

namespace lockstep::coll {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::chrono_literals;

enum class Direction : std::uint8_t { send, receive };

class ClosedParents : public testing::TestWithParam<Direction> {
 protected:
  ~ClosedParents() override { set_log_sink({}); }

  static void message(Session& group, int peer) {
    std::vector<float> x(3);
    if (GetParam() == Direction::send) {
      group.send(std::span(x), To{peer});
    } else {
      group.receive(std::span(x), From{peer});
    }
  }
  static void expect_left(const std::exception_ptr& thrown, int rank) {
    const PeerLost* e = as<PeerLost>(thrown);
    ASSERT_NE(e, nullptr) << "another kind, or nothing";
    EXPECT_EQ(e->code(), Code::failed_precondition);
    EXPECT_THAT(e->culprits(), ElementsAre(rank));
    EXPECT_THAT(e->what(), HasSubstr("rank 1 has left the group (its session was closed), but "
                                     "rank 2 needs it for operation 1: send_receive float32[3]"));
    EXPECT_THAT(e->what(),
                HasSubstr("it finished before its first operation, this rank asked for 1"));
  }
  /// Rank 1 goes on with its session of the whole group until that fails, too.
  static void stay(const Session& group) {
    for (;;) {
      group.check();
      std::this_thread::yield();
    }
  }
};

TEST_P(ClosedParents, AreNoticedByWhoComesLater) {
  const auto thrown = outcomes(3, [&](Session& group) {
    std::optional<Session> part = group.split({.color = 0, .key = -group.rank()});
    if (group.rank() == 1) part.reset();
    group.barrier();
    if (group.rank() == 2) message(*part, 1);
    stay(group);
  });
  for (const auto& each : thrown) expect_left(each, 1);
}

TEST_P(ClosedParents, AreNoticedByWhoWaitsAlready) {
  std::atomic<bool> waits = false;
  set_log_sink([&](LogLevel, std::string_view text) {
    if (text.find("rank 2 has waited") != std::string_view::npos) waits = true;
  });
  SessionOptions options;
  options.stall_report = 20ms;
  const auto thrown = outcomes(
      3,
      [&](Session& group) {
        std::optional<Session> part = group.split({.color = 0, .key = -group.rank()});
        if (group.rank() == 2) message(*part, 1);
        if (group.rank() == 1) {
          while (!waits.load()) std::this_thread::yield();
          part.reset();
        }
        stay(group);
      },
      options);
  for (const auto& each : thrown) expect_left(each, 1);
}

// The subgroup lives on, and so does the rank.
TEST_P(ClosedParents, AreNoticedInTheGroupOfAll) {
  const auto thrown = outcomes(3, [&](Session& group) {
    Session part = group.split({.color = 0});
    if (group.rank() == 1) {
      { const Session closed = std::move(group); }
      // The others may be through the barrier, and notice, before this rank is through it.
      const auto meet_and_stay = [&] {
        part.barrier();
        stay(part);
      };
      EXPECT_THROW(meet_and_stay(), PeerLost);
      return;
    }
    part.barrier();
    if (group.rank() == 2) message(group, 1);
    stay(group);
  });
  for (const int rank : {0, 2}) expect_left(thrown[static_cast<std::size_t>(rank)], 1);
}

INSTANTIATE_TEST_SUITE_P(Of, ClosedParents, testing::Values(Direction::send, Direction::receive),
                         [](const auto& each) {
                           return each.param == Direction::send ? "Sends" : "Receives";
                         });

// What was sent before counts.
TEST(ClosedParent, KeepsNothingBackThatWasSent) {
  run_ranks(2, [](Session& group) {
    for (int round = 0; round < 50; ++round) {
      std::optional<Session> part = group.split({.color = 0});
      std::vector<int> x(100, group.rank() == 0 ? round : -1);
      if (group.rank() == 0) {
        part->send(std::span(x), To{1});
      } else {
        part->receive(std::span(x), From{0});
      }
      part.reset();
      EXPECT_EQ(x, std::vector<int>(100, round));
    }
  });
}

}  // namespace
}  // namespace lockstep::coll
