#include "transport/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <random>

#include "base/crc32c.h"
#include "tests/transport/streams.h"

namespace lockstep::transport {
namespace {

using simulated::borrow;
using simulated::host;
using std::chrono_literals::operator""ms;
using testing::ElementsAre;
using testing::HasSubstr;

/// With and without checksums.
class Streams : public StreamsFixture, public testing::WithParamInterface<wire::Check> {
 protected:
  Streams() { check_ = GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(With, Streams, testing::Values(wire::Check::none, wire::Check::crc32c),
                         [](const auto& check) {
                           return check.param == wire::Check::none ? "NoCheck" : "Crc32c";
                         });

TEST_P(Streams, MovesBytes) {
  start(2);
  begin_all(broadcast(1));
  const Bytes sent = pattern(100);
  link(0).send(1, sent);
  EXPECT_EQ(receive(1, 0, 100), sent);
  EXPECT_EQ(link(0).end(), kNobody);
  EXPECT_EQ(link(1).end(), kNobody);
}

TEST_P(Streams, MovesMoreThanTheConnectionHolds) {
  start(2, {.buffer = 1000});
  begin_all(broadcast(1));
  const Bytes sent = pattern(100'000);
  link(0).send(1, sent);
  EXPECT_EQ(link(0).end(), 1);
  EXPECT_FALSE(link(0).drained(1));
  const std::uint64_t unsent = link(0).unsent();
  EXPECT_GT(unsent, sent.size() - 1000);
  EXPECT_LT(unsent, sent.size());
  Bytes received = receive(1, 0, 50'000);
  EXPECT_LE(link(0).unsent(), 50'000) << "shrinks while bytes move";
  const Bytes rest = receive(1, 0, 50'000);
  received.insert(received.end(), rest.begin(), rest.end());
  EXPECT_TRUE(received == sent);
  EXPECT_EQ(link(0).unsent(), 0);
  EXPECT_TRUE(link(0).drained(1));
  EXPECT_EQ(link(0).end(), kNobody);
}

TEST_P(Streams, BothMaySendFirst) {
  start(2, {.buffer = 64});
  begin_all(broadcast(1));
  std::vector<Bytes> sent;
  sent.reserve(40);
  for (int i = 0; i < 40; ++i) sent.push_back(pattern(3000, i));
  for (const Bytes& bytes : sent) {
    link(0).send(1, bytes);
    link(1).send(0, bytes);
  }
  for (const Bytes& bytes : sent) {
    ASSERT_TRUE(receive(0, 1, bytes.size()) == bytes);
    ASSERT_TRUE(receive(1, 0, bytes.size()) == bytes);
  }
}

// Sender and receiver cut the same bytes differently, and so does the network.
TEST_P(Streams, AnyCutsOnBothSides) {
  std::mt19937 random(7);
  for (const std::size_t piece :
       {std::size_t{1}, std::size_t{3}, std::size_t{700}, std::size_t{0}}) {
    start(2, {.jitter = 1ms, .piece = piece, .buffer = 5000});
    const Bytes stream = pattern(piece == 1 ? 4000 : 60'000);
    for (std::uint64_t sequence = 1; sequence <= 3; ++sequence) {
      begin_all(broadcast(sequence));
      for (std::size_t at = 0; at < stream.size();) {
        const std::size_t size = std::min<std::size_t>(
            stream.size() - at, random() % 3 ? random() % 50 : random() % 9000);
        link(0).send(1, std::span(stream).subspan(at, size));
        at += size;
      }
      Bytes got;
      while (got.size() < stream.size()) {
        const std::size_t size = std::min<std::size_t>(
            stream.size() - got.size(), 1 + (random() % 3 ? random() % 70 : random() % 12'000));
        const Bytes part = receive(1, 0, size);
        ASSERT_EQ(part.size(), size);
        got.insert(got.end(), part.begin(), part.end());
      }
      EXPECT_EQ(got, stream);
      EXPECT_EQ(link(0).end(), kNobody);
    }
  }
}

TEST_P(Streams, APeerAheadIsLeftInItsConnection) {
  start(2, {.buffer = 20'000});
  begin_all(broadcast(1));
  const Bytes first = pattern(10, 1);
  const Bytes second = pattern(50'000, 2);
  link(0).send(1, first);
  EXPECT_EQ(link(0).end(), kNobody);
  link(0).begin(broadcast(2), {}, 0);
  link(0).send(1, second);
  settle();
  EXPECT_EQ(link(0).end(), 1) << "back-pressure: rank 1 takes no more than it asked for";
  EXPECT_EQ(receive(1, 0, first.size()), first);
  EXPECT_EQ(link(0).end(), 1);
  EXPECT_EQ(link(1).end(), kNobody);
  link(1).begin(broadcast(2), {}, 0);
  EXPECT_EQ(receive(1, 0, second.size()), second);
}

TEST_P(Streams, AnotherNameIsAnotherOperation) {
  start(2);
  link(0).begin(broadcast(1, 0, "w"), {}, 0);
  link(1).begin(broadcast(1, 0, "weight"), {}, 0);
  link(0).send(1, pattern(5));
  settle();
  Bytes into(5);
  EXPECT_EQ(link(1).receive(0, into), 0U);
}

TEST_P(Streams, DisagreementIsFoundBeforeAnyByteIsDelivered) {
  start(3);
  link(0).begin(broadcast(1, 0, "w"), {}, 0);
  link(2).begin(broadcast(1, 1, "w"), {}, 0);
  link(0).send(2, pattern(28));
  settle();
  Bytes into(28, std::byte{0xEE});
  EXPECT_EQ(link(2).receive(0, into), 0U);
  EXPECT_EQ(into, Bytes(28, std::byte{0xEE}));
  ASSERT_TRUE(link(2).failed());
  const Status why = link(2).failure();
  EXPECT_EQ(why.kind(), ErrorKind::mismatch);
  EXPECT_THAT(why.culprits(), ElementsAre(0, 2));
  EXPECT_THAT(why.message(), HasSubstr("operation 1"));
  EXPECT_THAT(why.message(), HasSubstr("rank 0: broadcast float32[7] root 0 \"w\""));
  EXPECT_THAT(why.message(), HasSubstr("rank 2: broadcast float32[7] root 1 \"w\""));
  EXPECT_EQ(link(2).receive(0, into), 0U);
}

TEST_P(Streams, TheOddOneOutIsBlamedAlone) {
  start(3);
  link(0).begin(broadcast(1, 1), {}, 0);
  link(1).begin(broadcast(1, 0), {}, 0);
  link(2).begin(broadcast(1, 0), {}, 0);
  link(1).send(2, pattern(1));
  link(0).send(2, pattern(1));
  EXPECT_EQ(receive(2, 1, 1), pattern(1));
  EXPECT_EQ(receive(2, 0, 1), Bytes());
  ASSERT_TRUE(link(2).failed());
  EXPECT_THAT(link(2).failure().culprits(), ElementsAre(0));
}

TEST_P(Streams, BytesOfAnOperationThatIsOverHereAreAMismatch) {
  start(2);
  // Both think they are the root: both send, nobody receives.
  link(0).begin(broadcast(1, 0), {}, 0);
  link(1).begin(broadcast(1, 1), {}, 0);
  link(0).send(1, pattern(28));
  link(1).send(0, pattern(28));
  EXPECT_EQ(link(0).end(), kNobody);
  EXPECT_EQ(link(1).end(), kNobody);
  begin_all(broadcast(2, 0));
  settle();
  Bytes into(28);
  EXPECT_EQ(link(1).receive(0, into), 0U);
  ASSERT_TRUE(link(1).failed());
  EXPECT_THAT(link(1).failure().culprits(), ElementsAre(0, 1));
  EXPECT_THAT(link(1).failure().message(), HasSubstr("operation 1"));
  EXPECT_THAT(link(1).failure().message(), HasSubstr("rank 1: broadcast float32[7] root 1"));
}

TEST_P(Streams, APeerThatWentOnWithoutSendingIsAMismatch) {
  start(2);
  begin_all(broadcast(1));
  link(0).begin(broadcast(2, 0, "next"), {}, 0);
  link(0).send(1, pattern(28));
  settle();
  Bytes into(28);
  EXPECT_EQ(link(1).receive(0, into), 0U);
  ASSERT_TRUE(link(1).failed());
  EXPECT_EQ(link(1).failure().kind(), ErrorKind::mismatch);
  EXPECT_THAT(link(1).failure().culprits(), ElementsAre(0, 1));
  EXPECT_THAT(link(1).failure().message(), HasSubstr("gone on"));
  EXPECT_THAT(link(1).failure().message(), HasSubstr("\"next\""));
}

TEST_P(Streams, ADeadConnectionMakesASuspectAndNoVerdict) {
  start(2);
  begin_all(broadcast(1));
  network_->kill(host(0));
  settle();
  Bytes into(28);
  EXPECT_EQ(link(1).receive(0, into), 0U);
  EXPECT_TRUE(link(1).suspect(0));
  EXPECT_FALSE(link(1).failed());
  link(1).send(0, pattern(100'000));
  EXPECT_EQ(link(1).end(), 0);
  EXPECT_FALSE(link(1).failed());
}

TEST_P(Streams, WhatArrivedBeforeAnOrderlyEndCounts) {
  start(2);
  begin_all(broadcast(1));
  link(0).send(1, pattern(28));
  raw(0, 1).shutdown_write();
  settle();
  EXPECT_EQ(receive(1, 0, 28), pattern(28));
}

TEST_P(Streams, GarbageNamesTheRankThatSentIt) {
  start(2);
  begin_all(broadcast(1));
  (void)raw(0, 1).write(pattern(64));
  settle();
  Bytes into(28);
  EXPECT_EQ(link(1).receive(0, into), 0U);
  ASSERT_TRUE(link(1).failed());
  EXPECT_EQ(link(1).failure().kind(), ErrorKind::data_error);
  EXPECT_THAT(link(1).failure().culprits(), ElementsAre(0));
  EXPECT_THAT(link(1).failure().message(), HasSubstr("magic"));
}

TEST_P(Streams, RefusesFramesThatDoNotBelong) {
  const auto sends = [&](wire::Header header, std::size_t payload) {
    start(2);
    begin_all(broadcast(1));
    std::array<std::byte, wire::kHeaderBytes> bytes;
    if (GetParam() == wire::Check::crc32c) header.crc = crc32c(Bytes(payload));
    wire::encode(header, bytes);
    (void)raw(0, 1).write(bytes);
    (void)raw(0, 1).write(Bytes(payload));
    settle();
    Bytes into(28);
    EXPECT_EQ(link(1).receive(0, into), 0U);
    return link(1).failure().message();
  };
  using wire::FrameType;
  EXPECT_THAT(sends({.type = FrameType::data, .generation = 5, .sequence = 1, .length = 28}, 28),
              HasSubstr("where none belongs"));
  EXPECT_THAT(sends({.type = FrameType::pulse, .generation = 5, .length = wire::kPulseBytes},
                    wire::kPulseBytes),
              HasSubstr("where none belongs"));
  EXPECT_THAT(sends({.type = FrameType::data, .generation = 4, .sequence = 1, .length = 28}, 28),
              HasSubstr("generation 4"));
}

// Users know ranks by their numbers in the outermost group.
TEST_P(Streams, ASubgroupNamesRanksAsTheGenerationDoes) {
  members_ = {4, 6, 7};
  const auto failure_of_two = [&] {
    settle();
    Bytes into(28);
    EXPECT_EQ(link(2).receive(0, into), 0U);
    return link(2).failure();
  };
  const auto sends = [&](wire::Header header) {
    start(3);
    begin_all(broadcast(1));
    std::array<std::byte, wire::kHeaderBytes> bytes;
    if (GetParam() == wire::Check::crc32c) header.crc = 0;
    wire::encode(header, bytes);
    (void)raw(0, 2).write(bytes);
    return failure_of_two();
  };
  using wire::FrameType;
  Status why = sends({.type = FrameType::data, .generation = 5, .sequence = 1, .length = 28});
  EXPECT_THAT(why.message(), HasSubstr("rank 7 got from rank 4"));
  EXPECT_THAT(why.culprits(), ElementsAre(4));
  why = sends({.type = FrameType::data, .generation = 4, .sequence = 1, .length = 28});
  EXPECT_THAT(why.message(), HasSubstr("rank 4 is in generation 4, rank 7 in generation 5"));
  EXPECT_THAT(why.culprits(), ElementsAre(4));

  start(3);
  begin_all(broadcast(1));
  (void)raw(0, 2).write(pattern(64));
  EXPECT_THAT(failure_of_two().culprits(), ElementsAre(4)) << "garbage";

  start(3);
  link(0).begin(broadcast(1, 0), {}, 0);
  link(2).begin(broadcast(1, 1), {}, 0);
  link(0).send(2, pattern(28));
  why = failure_of_two();
  EXPECT_THAT(why.message(), HasSubstr("rank 4: broadcast float32[7] root 0"));
  EXPECT_THAT(why.message(), HasSubstr("rank 7: broadcast float32[7] root 1"));
  EXPECT_THAT(why.culprits(), ElementsAre(4, 7)) << "a disagreement";

  start(3);
  begin_all(broadcast(1));
  link(0).begin(broadcast(2), {}, 0);
  link(0).send(2, pattern(28));
  why = failure_of_two();
  EXPECT_THAT(why.message(), HasSubstr("rank 7 expects bytes from rank 4"));
  EXPECT_THAT(why.culprits(), ElementsAre(4, 7)) << "one that has gone on";

  start(3);
  begin_all(broadcast(1));
  link(0).send(2, pattern(28));
  EXPECT_EQ(link(0).end(), kNobody);
  begin_all(broadcast(2));
  why = failure_of_two();
  EXPECT_THAT(why.message(), HasSubstr("rank 4 sent bytes for operation 1"));
  EXPECT_THAT(why.culprits(), ElementsAre(4, 7)) << "bytes that nobody expected";
}

TEST_P(Streams, AfterAFailureNothingMoves) {
  start(2);
  begin_all(broadcast(1));
  link(0).send(1, pattern(28));
  settle();
  link(1).fail({ErrorKind::cancelled, Code::cancelled, "enough"});
  Bytes into(28);
  EXPECT_EQ(link(1).receive(0, into), 0U);
  EXPECT_EQ(link(1).failure().message(), "enough");
}

TEST_P(Streams, WaitEndsWithTheOperationTheFailureOrTheDeadline) {
  start(2);
  EXPECT_TRUE(link(0).wait(
      1, [] { return true; }, Deadline::never()));
  EXPECT_FALSE(link(0).wait(
      1, [] { return false; }, Deadline::at(world_->now())));
  link(0).fail({ErrorKind::cancelled, Code::cancelled, "enough"});
  EXPECT_TRUE(link(0).wait(
      1, [] { return false; }, Deadline::never()));
}

TEST_P(Streams, WaitSleepsAtThePoller) {
  start(2);
  const auto poller = network_->at(host(1)).poller();
  Failure failure;
  StreamLink sleeper({.rank = 1,
                      .size = 2,
                      .generation = 5,
                      .failure = &failure,
                      .clock = &*world_,
                      .peers = borrow(mesh_[1]),
                      .checks = {GetParam(), GetParam()},
                      .poller = poller.get()});
  link(0).begin(broadcast(1), {}, 0);
  sleeper.begin(broadcast(1), {}, 0);
  const Bytes sent = pattern(30'000);
  world_->schedule_after(500ms, [&] { link(0).send(1, sent); });
  Bytes got(sent.size());
  std::size_t moved = 0;
  const auto done = [&] {
    link(0).end();
    moved += sleeper.receive(0, std::span(got).subspan(moved));
    return moved == got.size();
  };
  EXPECT_FALSE(sleeper.wait(0, done, Deadline::at(world_->now() + 100ms)));
  EXPECT_TRUE(sleeper.wait(0, done, Deadline::at(world_->now() + 1000ms)));
  EXPECT_EQ(got, sent);
}

TEST(History, FindsWhatWasAskedForAndNoticesADifferentPast) {
  History one;
  History other;
  EXPECT_FALSE(one.at(1));
  EXPECT_EQ(one.latest().descriptor.sequence, 0U);
  for (std::uint64_t i = 1; i <= 100; ++i) {
    one.add(broadcast(i));
    other.add(broadcast(i, i == 50 ? 1 : 0));
    EXPECT_EQ(one.latest().digest == other.latest().digest, i < 50) << i;
  }
  EXPECT_FALSE(one.at(36));
  ASSERT_TRUE(one.at(37));
  EXPECT_EQ(one.at(37)->descriptor, broadcast(37));
  EXPECT_FALSE(one.at(101));
}

TEST(Failure, ProposesOnceTheRanksHaveToAgree) {
  Failure failure;
  failure.hold_for_verdict();
  failure.report({ErrorKind::cancelled, Code::cancelled, "mine"});
  failure.report({ErrorKind::cancelled, Code::cancelled, "late"});
  EXPECT_FALSE(failure.raised());
  EXPECT_EQ(failure.proposal().message(), "mine");
  EXPECT_TRUE(failure.set({ErrorKind::peer_lost, Code::unavailable, "verdict"}));
  EXPECT_EQ(failure.cause().message(), "verdict");
}

TEST(StreamLinks, GiveBackWhatTheyBorrowWhenTheGroupIsClosed) {
  Failure failure;
  MonotonicClock clock;
  auto borrowed = std::make_shared<int>();
  const std::weak_ptr<int> kept = borrowed;
  StreamLink link({.rank = 1,
                   .size = 2,
                   .generation = 5,
                   .failure = &failure,
                   .clock = &clock,
                   .peers = {nullptr, nullptr},
                   .members = {4, 7},
                   .borrowed = std::move(borrowed)});
  link.leave();
  EXPECT_FALSE(kept.expired());
  link.retire();
  EXPECT_TRUE(kept.expired());
  EXPECT_EQ(link.size(), 2);
  EXPECT_EQ(link.member(1), 7);
  EXPECT_FALSE(link.failed());
}

}  // namespace
}  // namespace lockstep::transport
