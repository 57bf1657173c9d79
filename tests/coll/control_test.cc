// Deaths, aborts and disagreements: one verdict for all.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/coll/controls.h"

namespace lockstep::coll {
namespace {

using simulated::host;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;

wire::Descriptor broadcast(std::uint64_t sequence, int root) {
  wire::Descriptor d = barrier(sequence);
  d.kind = 2;
  d.root = root;
  return d;
}

TEST_F(Controls, DeathIsNoticedAtOnceAndSpreads) {
  for (int victim = 0; victim < 6; ++victim) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      start(6, {.delay = 1ms, .jitter = 2ms}, seed);
      run(350ms);
      const Time died = world_->now();
      kill(victim);
      run(200ms);
      const Status why = verdict({victim});
      EXPECT_EQ(why.kind(), ErrorKind::peer_lost);
      EXPECT_THAT(why.culprits(), ElementsAre(victim));
      EXPECT_THAT(why.message(), HasSubstr("died: its control connection"));
      EXPECT_LE(longest_since(died, {victim}), kTprop) << "victim " << victim;
    }
  }
}

/// A connection whose own end runs out of memory, as TLS may.
class ShortConnection final : public sys::Connection {
 public:
  ShortConnection(std::unique_ptr<sys::Connection> inner, const bool& is_short)
      : inner_(std::move(inner)), short_(is_short) {}
  sys::Transfer read(std::span<std::byte> into) noexcept override {
    return short_ ? sys::Transfer{0, sys::Transfer::State::broken} : inner_->read(into);
  }
  sys::Transfer write(std::span<const std::byte> from) noexcept override {
    return inner_->write(from);
  }
  void shutdown_write() noexcept override { inner_->shutdown_write(); }
  [[nodiscard]] Status error() const override {
    return short_ ? Status(ErrorKind::system_error, Code::resource_exhausted, "no memory for TLS")
                  : inner_->error();
  }
  [[nodiscard]] std::string peer() const override { return inner_->peer(); }

 private:
  std::unique_ptr<sys::Connection> inner_;
  const bool& short_;
};

TEST_F(Controls, MemoryThatIsShortAtOneEndIsThatRanksOwnFailure) {
  bool is_short = false;
  wrap_ = [&](int rank,
              std::unique_ptr<sys::Connection> inner) -> std::unique_ptr<sys::Connection> {
    if (rank != 2 || !inner->peer().starts_with(host(0))) return inner;
    return std::make_unique<ShortConnection>(std::move(inner), is_short);
  };
  start(4);
  run(350ms);
  expect_no_failure();
  is_short = true;
  run(200ms);
  const Status why = verdict({});
  EXPECT_EQ(why.kind(), ErrorKind::system_error);
  EXPECT_EQ(why.code(), Code::resource_exhausted);
  EXPECT_THAT(why.culprits(), ElementsAre(2));
  EXPECT_THAT(why.message(), HasSubstr("rank 2: no memory for TLS"));
}

// A6: rank 0 waits a moment for the second.
TEST_F(Controls, TwoDeathsAtOnceAreBothNamed) {
  for (int one = 0; one < 6; ++one) {
    for (int other = one + 1; other < 6; ++other) {
      for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        start(6, {.delay = 1ms, .jitter = 3ms}, seed);
        run(350ms);
        kill(seed % 2 == 0 ? one : other);
        if (seed > 2) run(2ms);
        kill(one);
        kill(other);
        run(200ms);
        const Status why = verdict({one, other});
        // One that dies after it has told of the other has said why it ends.
        if (one > 0 && seed <= 2) {
          EXPECT_THAT(why.culprits(), ElementsAre(one, other));
          EXPECT_THAT(why.message(), HasSubstr(fmt::format("rank {} (", one)));
          EXPECT_THAT(why.message(), HasSubstr(fmt::format("rank {} (", other)));
        } else {
          EXPECT_THAT(why.culprits(), testing::IsSubsetOf({one, other}));
          EXPECT_FALSE(why.culprits().empty());
        }
      }
    }
  }
}

TEST_F(Controls, OfTwoThatHaveLostEachOtherTheOneThatDecidesIsRight) {
  start(6);
  run(350ms);
  network_->cut(host(0), host(3));
  run(200ms);
  EXPECT_THAT(verdict({}).culprits(), ElementsAre(3)) << "rank 0 is well: it has decided";
}

TEST_F(Controls, AnAbortReachesAllWithItsText) {
  for (int origin = 0; origin < 6; ++origin) {
    start(6, {.delay = 1ms, .jitter = 1ms, .piece = 5});
    run(1s);
    const Time at = world_->now();
    rank(origin).failure.report({ErrorKind::cancelled, Code::cancelled, "user said so", {origin}});
    EXPECT_FALSE(rank(origin).failure.raised()) << "not before all agree";
    run(500ms);
    const Status why = verdict({});
    EXPECT_EQ(why.kind(), ErrorKind::cancelled);
    EXPECT_EQ(why.message(), "user said so");
    EXPECT_THAT(why.culprits(), ElementsAre(origin));
    EXPECT_LE(longest_since(at, {}), 500ms);
  }
}

TEST_F(Controls, CausesReportedAtOnceBecomeOne) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    start(6, {.delay = 1ms, .jitter = 5ms}, seed);
    run(500ms);
    for (int r = 0; r < 6; ++r) {
      rank(r).failure.report({ErrorKind::cancelled, Code::cancelled, host(r), {r}});
    }
    run(100ms);
    EXPECT_EQ(verdict({}).culprits().size(), 1U);
  }
}

TEST_F(Controls, ANoticeOfAPeerIsOnePrintableLine) {
  start(2);
  run(10ms);
  rank(0).control->notify(
      1, "hello\n[lockstep 12:00:00.000 error] forged \x1b[2J" + std::string(1000, 'x'));
  run(10ms);
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_THAT(warnings_[0],
              testing::StartsWith("hello\\x0a[lockstep 12:00:00.000 error] forged \\x1b[2Jxx"));
  EXPECT_EQ(warnings_[0].size(), 512U);
}

// A rank that aborts and exits is blamed for what it said, not for having died.
TEST_F(Controls, AnAbortIsHeardBeforeTheEnd) {
  for (int origin = 0; origin < 4; ++origin) {
    start(4);
    run(500ms);
    rank(origin).failure.report({ErrorKind::cancelled, Code::cancelled, "gave up", {origin}});
    rank(origin).control->poll(world_->now());
    rank(origin).running = false;
    for (auto& connection : mesh_[static_cast<std::size_t>(origin)]) {
      if (connection) connection->shutdown_write();
    }
    run(300ms);
    EXPECT_EQ(verdict({origin}).message(), "gave up") << origin;
  }
}

TEST_F(Controls, PulsesFindRanksWhoseCallsDiffer) {
  start(4);
  for (std::uint64_t i = 1; i <= 3; ++i) {
    for (int r = 0; r < 4; ++r) rank(r).history.add(broadcast(i, r == 3 && i == 3 ? 3 : 0));
  }
  run(300ms);
  const Status why = verdict({});
  EXPECT_EQ(why.kind(), ErrorKind::mismatch);
  EXPECT_THAT(why.culprits(), testing::ElementsAre(3)) << "the others agree";
  EXPECT_THAT(why.message(), HasSubstr("operation 3"));
  EXPECT_THAT(why.message(), HasSubstr("rank 3: broadcast root 3"));
}

TEST_F(Controls, PulsesFindACallThatDifferedLongAgo) {
  start(2);
  for (std::uint64_t i = 1; i <= 90; ++i) {
    for (int r = 0; r < 2; ++r) rank(r).history.add(broadcast(i, r == 1 && i == 3 ? 1 : 0));
  }
  run(300ms);
  EXPECT_THAT(verdict({}).message(), HasSubstr("before operation 90"));
}

TEST_F(Controls, RanksAtDifferentOperationsAgree) {
  start(3);
  for (int round = 0; round < 30; ++round) {
    for (int r = 0; r < 3; ++r) {
      const std::uint64_t done = rank(r).history.latest().descriptor.sequence;
      const std::uint64_t target =
          static_cast<std::uint64_t>(round) * 10 + static_cast<std::uint64_t>(r) * 7;
      for (std::uint64_t i = done + 1; i <= target; ++i) rank(r).history.add(barrier(i));
    }
    run(60ms);
  }
  expect_no_failure();
}

TEST_F(Controls, GarbageIsTheEndOfWhoSentIt) {
  start(3);
  run(500ms);
  const std::vector<std::byte> garbage(64, std::byte{7});
  (void)mesh_[2][1]->write(garbage);
  run(100ms);
  const Status why = verdict({});
  EXPECT_THAT(why.culprits(), ElementsAre(2));
  EXPECT_THAT(why.message(), HasSubstr("unreadable frame"));
}

TEST_F(Controls, AGroupOfOneNeedsNobody) {
  start(1);
  run(1s);
  rank(0).failure.report({ErrorKind::cancelled, Code::cancelled, "enough"});
  run(2ms);
  EXPECT_TRUE(rank(0).failure.raised());
  rank(0).control->goodbye(1);
  EXPECT_TRUE(rank(0).control->may_leave());
}

// Polling only when next_poll() says so, or when something arrived, is enough.
TEST_F(Controls, NextPollIsSoonEnough) {
  start(3);
  std::vector<std::uint64_t> seen(3, 0);
  const Time end = world_->now() + 8s;
  bool silenced = false;
  int polls = 0;
  while (world_->now() < end) {
    Time next = end;
    for (int r = 0; r < 3; ++r) {
      const std::uint64_t activity = network_->at(host(r)).activity();
      Control& control = *rank(r).control;
      if (activity != seen[static_cast<std::size_t>(r)] || control.next_poll() <= world_->now()) {
        seen[static_cast<std::size_t>(r)] = activity;
        control.poll(world_->now());
        ++polls;
      }
      next = std::min(next, control.next_poll());
    }
    if (!silenced && world_->now() > Time{} + 2s) {
      network_->silence_all(host(1));
      silenced = true;
    }
    ASSERT_GT(next, world_->now()) << "a rank that always has something to do";
    if (world_->next() <= next) {
      world_->step();
    } else {
      world_->run_for(next - world_->now());
    }
  }
  EXPECT_THAT(verdict({1}).culprits(), ElementsAre(1));
  EXPECT_LT(polls, 2000);
}

}  // namespace
}  // namespace lockstep::coll
