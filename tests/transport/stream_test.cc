#include "transport/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <random>

#include "lockstep/dtype.h"
#include "tests/sim_cluster/mesh.h"

namespace lockstep::transport {
namespace {

using simulated::borrow;
using simulated::host;
using simulated::make_mesh;
using std::chrono_literals::operator""ms;
using testing::ElementsAre;
using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

Bytes pattern(std::size_t size, int seed = 0) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>((i * 131 + i / 251 + static_cast<std::size_t>(seed)) & 0xFF);
  }
  return bytes;
}

wire::Descriptor broadcast(std::uint64_t sequence, int root = 0, const char* name = "") {
  wire::Descriptor d;
  d.sequence = sequence;
  d.kind = 2;
  d.dtype = static_cast<std::uint8_t>(DType::float32);
  d.count = 7;
  d.root = root;
  d.name = wire::Name(name);
  return d;
}

class Streams : public testing::Test {
 protected:
  void start(int size, sim::LinkOptions links = {}) {
    links_.clear();
    mesh_.clear();
    network_.reset();
    world_.emplace(1);
    network_ = std::make_unique<sim::Network>(*world_, links);
    mesh_ = make_mesh(*world_, *network_, size, 4000, [](int, int) { return true; });
    failures_ = std::vector<Failure>(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      links_.push_back(std::make_unique<StreamLink>(
          StreamLink::Setup{.rank = rank,
                            .size = size,
                            .generation = 5,
                            .failure = &failures_[static_cast<std::size_t>(rank)],
                            .clock = &*world_,
                            .peers = borrow(mesh_[static_cast<std::size_t>(rank)]),
                            .members = members_}));
    }
  }
  StreamLink& link(int rank) { return *links_[static_cast<std::size_t>(rank)]; }
  sys::Connection& raw(int rank, int peer) {
    return *mesh_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(peer)];
  }
  void begin_all(const wire::Descriptor& descriptor) {
    for (auto& l : links_) l->begin(descriptor, {}, 0);
  }
  /// Receives exactly `size` bytes in one posted span.
  Bytes receive(int rank, int from, std::size_t size) {
    Bytes bytes(size);
    std::size_t got = 0;
    // A round may move headers only; four of them in a row without a byte or an event move none.
    for (int idle = 0; idle < 4 && got < size && !link(rank).failed();) {
      for (auto& l : links_) l->end();
      const std::size_t now = link(rank).receive(from, std::span(bytes).subspan(got));
      got += now;
      idle = now > 0 || world_->step() ? 0 : idle + 1;
    }
    bytes.resize(got);
    return bytes;
  }
  void settle() { world_->run_for(10ms); }

  std::optional<sim::World> world_;
  std::unique_ptr<sim::Network> network_;
  simulated::Mesh mesh_;
  std::vector<Failure> failures_;
  std::vector<std::unique_ptr<StreamLink>> links_;
  std::vector<int> members_;  // of the links that start() makes
};

TEST_F(Streams, MovesBytes) {
  start(2);
  begin_all(broadcast(1));
  const Bytes sent = pattern(100);
  link(0).send(1, sent);
  EXPECT_EQ(receive(1, 0, 100), sent);
  EXPECT_EQ(link(0).end(), kNobody);
  EXPECT_EQ(link(1).end(), kNobody);
}

TEST_F(Streams, MovesMoreThanTheConnectionHolds) {
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

TEST_F(Streams, BothMaySendFirst) {
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
TEST_F(Streams, AnyCutsOnBothSides) {
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

TEST_F(Streams, APeerAheadIsLeftInItsConnection) {
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

TEST_F(Streams, AnotherNameIsAnotherOperation) {
  start(2);
  link(0).begin(broadcast(1, 0, "w"), {}, 0);
  link(1).begin(broadcast(1, 0, "weight"), {}, 0);
  link(0).send(1, pattern(5));
  settle();
  Bytes into(5);
  EXPECT_EQ(link(1).receive(0, into), 0U);
}

TEST_F(Streams, DisagreementIsFoundBeforeAnyByteIsDelivered) {
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

TEST_F(Streams, TheOddOneOutIsBlamedAlone) {
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

TEST_F(Streams, BytesOfAnOperationThatIsOverHereAreAMismatch) {
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

TEST_F(Streams, APeerThatWentOnWithoutSendingIsAMismatch) {
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

TEST_F(Streams, ADeadConnectionMakesASuspectAndNoVerdict) {
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

TEST_F(Streams, WhatArrivedBeforeAnOrderlyEndCounts) {
  start(2);
  begin_all(broadcast(1));
  link(0).send(1, pattern(28));
  raw(0, 1).shutdown_write();
  settle();
  EXPECT_EQ(receive(1, 0, 28), pattern(28));
}

TEST_F(Streams, GarbageNamesTheRankThatSentIt) {
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

TEST_F(Streams, RefusesFramesThatDoNotBelong) {
  const auto sends = [&](wire::Header header, std::size_t payload) {
    start(2);
    begin_all(broadcast(1));
    std::array<std::byte, wire::kHeaderBytes> bytes;
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
TEST_F(Streams, ASubgroupNamesRanksAsTheGenerationDoes) {
  members_ = {4, 6, 7};
  const auto failure_of_two = [&] {
    settle();
    Bytes into(28);
    EXPECT_EQ(link(2).receive(0, into), 0U);
    return link(2).failure();
  };
  const auto sends = [&](const wire::Header& header) {
    start(3);
    begin_all(broadcast(1));
    std::array<std::byte, wire::kHeaderBytes> bytes;
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

TEST_F(Streams, AfterAFailureNothingMoves) {
  start(2);
  begin_all(broadcast(1));
  link(0).send(1, pattern(28));
  settle();
  link(1).fail({ErrorKind::cancelled, Code::cancelled, "enough"});
  Bytes into(28);
  EXPECT_EQ(link(1).receive(0, into), 0U);
  EXPECT_EQ(link(1).failure().message(), "enough");
}

TEST_F(Streams, WaitEndsWithTheOperationTheFailureOrTheDeadline) {
  start(2);
  EXPECT_TRUE(link(0).wait(
      1, [] { return true; }, Deadline::never()));
  EXPECT_FALSE(link(0).wait(
      1, [] { return false; }, Deadline::at(world_->now())));
  link(0).fail({ErrorKind::cancelled, Code::cancelled, "enough"});
  EXPECT_TRUE(link(0).wait(
      1, [] { return false; }, Deadline::never()));
}

TEST_F(Streams, WaitSleepsAtThePoller) {
  start(2);
  const auto poller = network_->at(host(1)).poller();
  Failure failure;
  StreamLink sleeper({.rank = 1,
                      .size = 2,
                      .generation = 5,
                      .failure = &failure,
                      .clock = &*world_,
                      .peers = borrow(mesh_[1]),
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

}  // namespace
}  // namespace lockstep::transport
