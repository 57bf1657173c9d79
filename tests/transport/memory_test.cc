// The memory link on its own, driven by hand from one thread: flags, slots, messages, disagreement.
#include "transport/memory.h"

#include <gmock/gmock.h>

#include <cstring>

namespace lockstep::transport {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

wire::Descriptor all_reduce(std::uint64_t sequence, std::uint64_t count = 4) {
  wire::Descriptor descriptor;
  descriptor.sequence = sequence;
  descriptor.count = count;
  descriptor.kind = static_cast<std::uint8_t>(plan::Kind::all_reduce);
  descriptor.op = 0;
  descriptor.dtype = 1;
  return descriptor;
}

std::span<const std::byte> bytes_of(const std::vector<int>& values) {
  return std::as_bytes(std::span(values));
}

/// Ranks of one group, all in this thread.
class MemoryLinks : public testing::Test {
 protected:
  MemoryLinks() {
    for (int rank = 0; rank < 3; ++rank) links_.push_back(fabric_.link(0, {0, 1, 2}, rank));
  }
  Link& link(int rank) { return *links_[static_cast<std::size_t>(rank)]; }
  void begin(int rank, const wire::Descriptor& descriptor, std::size_t slot = 0) {
    ASSERT_EQ(link(rank).begin(descriptor, nothing_, slot), kNobody);
  }
  /// A wait that gives up at once, but looks.
  bool look(int rank, int peer) {
    return link(rank).wait(
        peer, [] { return false; }, Deadline::at(Time{}));
  }

  MemoryFabric fabric_{3, 1};
  Exposure nothing_;
  std::vector<std::unique_ptr<Link>> links_;
};

TEST_F(MemoryLinks, StagesAreSeenOncePublishedAndStaySeen) {
  begin(0, all_reduce(1));
  begin(1, all_reduce(1));
  EXPECT_FALSE(link(1).reached(0, 1));
  link(0).publish(1);
  EXPECT_TRUE(link(1).reached(0, 1));
  EXPECT_FALSE(link(1).reached(0, 2));
  link(0).publish(2);
  EXPECT_TRUE(link(1).reached(0, 1));
  begin(0, all_reduce(2));
  link(0).publish(1);
  EXPECT_TRUE(link(1).reached(0, 2)) << "the peer has gone on to the next operation";
}

TEST_F(MemoryLinks, SlotsAlternateAndKeepTheirFlags) {
  std::uint64_t sequence = 0;
  // In the flag's line, and behind it.
  for (const std::size_t bytes : {4U, 48U, 49U, 256U, 4096U}) {
    for (int turn = 0; turn < 3; ++turn) {
      ++sequence;
      const auto value = [&](int rank) { return static_cast<int>(sequence * 2) + rank; };
      for (int rank = 0; rank < 2; ++rank) {
        begin(rank, all_reduce(sequence), bytes);
        std::memset(link(rank).slot(rank), value(rank), bytes);
      }
      EXPECT_FALSE(link(1).reached(0, 1));
      for (int rank = 0; rank < 2; ++rank) link(rank).publish(1);
      for (int rank = 0; rank < 2; ++rank) {
        const int peer = 1 - rank;
        ASSERT_TRUE(link(rank).reached(peer, 1));
        const std::vector<std::byte> expected(bytes, static_cast<std::byte>(value(peer)));
        EXPECT_EQ(std::memcmp(link(rank).slot(peer), expected.data(), bytes), 0) << bytes;
      }
    }
  }
}

TEST_F(MemoryLinks, AnOfferIsBeginSlotAndPublish) {
  std::uint64_t sequence = 0;
  for (const std::size_t bytes : {4U, 48U, 49U, 256U, 8192U}) {
    for (int turn = 0; turn < 3; ++turn) {
      ++sequence;
      const auto value = [&](int rank) { return static_cast<std::byte>(sequence * 2 + rank); };
      for (int rank = 0; rank < 2; ++rank) {
        const std::vector<std::byte> data(bytes, value(rank));
        ASSERT_EQ(link(rank).offer(all_reduce(sequence), bytes, data, 1), kNobody);
      }
      for (int rank = 0; rank < 2; ++rank) {
        const int peer = 1 - rank;
        ASSERT_TRUE(link(rank).reached(peer, 1));
        const std::vector<std::byte> expected(bytes, value(peer));
        EXPECT_EQ(std::memcmp(link(rank).slot(peer), expected.data(), bytes), 0) << bytes;
      }
    }
  }
}

TEST_F(MemoryLinks, AnOfferOfAnotherOperationIsADisagreement) {
  const std::vector<std::byte> data(4);
  auto other = all_reduce(1);
  other.count += 1;
  ASSERT_EQ(link(1).offer(other, 4, data, 1), kNobody);
  for (const int rank : {0, 2}) ASSERT_EQ(link(rank).offer(all_reduce(1), 4, data, 1), kNobody);
  EXPECT_FALSE(link(0).reached(1, 1));
  EXPECT_TRUE(link(0).failed());
  EXPECT_EQ(link(0).failure().kind(), ErrorKind::mismatch);
  EXPECT_EQ(link(0).failure().culprits(), std::vector<int>{1});
}

TEST_F(MemoryLinks, ASlotMayBePublishedInStages) {
  std::uint64_t sequence = 0;
  for (const std::size_t bytes : {96U, 1024U}) {
    ++sequence;
    for (int rank = 0; rank < 2; ++rank) begin(rank, all_reduce(sequence), bytes);
    for (std::uint32_t stage = 1; stage <= 3; ++stage) {
      EXPECT_FALSE(link(1).reached(0, stage));
      const std::size_t at = std::size_t{31} * stage;
      link(0).slot(0)[at] = static_cast<std::byte>(stage);
      link(0).publish(stage);
      ASSERT_TRUE(link(1).reached(0, stage));
      EXPECT_EQ(link(1).slot(0)[at], static_cast<std::byte>(stage)) << bytes;
    }
  }
}

TEST_F(MemoryLinks, ASmallSlotOfAnotherOperationIsADisagreement) {
  begin(0, all_reduce(1), 4);
  auto other = all_reduce(1);
  other.count += 1;
  begin(1, other, 4);
  begin(2, all_reduce(1), 4);
  link(1).publish(1);
  EXPECT_FALSE(link(0).reached(1, 1));
  EXPECT_TRUE(link(0).failed());
  EXPECT_EQ(link(0).failure().kind(), ErrorKind::mismatch);
}

TEST_F(MemoryLinks, MessagesAreAByteStream) {
  begin(0, all_reduce(1));
  begin(2, all_reduce(1));
  const std::vector<int> first = {1, 2, 3};
  const std::vector<int> second = {4, 5};
  link(0).send(2, bytes_of(first));
  link(0).send(2, bytes_of(second));
  EXPECT_FALSE(link(0).drained(2));
  EXPECT_EQ(link(0).end(), 2);
  EXPECT_EQ(link(0).unsent(), 20U);
  std::vector<int> into(4);
  auto bytes = std::as_writable_bytes(std::span(into));
  EXPECT_EQ(link(2).receive(0, bytes.first(2)), 2U) << "in the middle of an element";
  EXPECT_EQ(link(0).unsent(), 18U);
  EXPECT_EQ(link(2).receive(0, bytes.subspan(2)), 14U) << "across two sends";
  EXPECT_EQ(into, (std::vector<int>{1, 2, 3, 4}));
  EXPECT_FALSE(link(0).drained(2));
  EXPECT_EQ(link(2).receive(0, bytes), 4U);
  EXPECT_EQ(into[0], 5);
  EXPECT_EQ(link(2).receive(0, bytes), 0U);
  EXPECT_TRUE(link(0).drained(2));
  EXPECT_EQ(link(0).unsent(), 0U);
  EXPECT_EQ(link(0).end(), kNobody);
}

TEST_F(MemoryLinks, LongTrainsOfMessagesKeepTheirOrder) {
  begin(0, all_reduce(1));
  begin(1, all_reduce(1));
  std::vector<int> numbers(1000);
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = static_cast<int>(i);
      link(0).send(1, std::as_bytes(std::span(&numbers[i], 1)));
    }
    std::vector<int> into(numbers.size());
    EXPECT_EQ(link(1).receive(0, std::as_writable_bytes(std::span(into))), 4 * into.size());
    EXPECT_EQ(into, numbers);
    EXPECT_TRUE(link(0).drained(1));
  }
}

TEST_F(MemoryLinks, ADisagreementIsSeenBeforeAnyByteIsDelivered) {
  begin(0, all_reduce(1, 4));
  begin(1, all_reduce(1, 5));
  begin(2, all_reduce(1, 4));
  const std::vector<int> data = {7};
  link(0).send(1, bytes_of(data));
  std::vector<int> into = {-1};
  EXPECT_EQ(link(1).receive(0, std::as_writable_bytes(std::span(into))), 0U);
  EXPECT_EQ(into[0], -1);
  ASSERT_TRUE(link(2).failed());
  EXPECT_EQ(link(2).failure().kind(), ErrorKind::mismatch);
  EXPECT_THAT(link(2).failure().culprits(), ElementsAre(1));
}

TEST_F(MemoryLinks, ADisagreementWaitsForTheOthersRequests) {
  begin(0, all_reduce(1, 4));
  begin(1, all_reduce(1, 5));
  link(1).publish(1);
  EXPECT_FALSE(link(0).reached(1, 1));
  EXPECT_FALSE(link(0).failed()) << "rank 2's request is not known yet";
  EXPECT_THAT(link(0).missing(), ElementsAre(2));
  EXPECT_TRUE(look(0, 1)) << "patience is over";
  EXPECT_THAT(link(1).failure().message(), HasSubstr("rank 2: has not arrived"));
  EXPECT_THAT(link(1).failure().culprits(), ElementsAre(0, 1));
}

TEST_F(MemoryLinks, TwoThatWaitForDifferentThingsNoticeInTheWait) {
  begin(0, all_reduce(1));
  wire::Descriptor barrier = all_reduce(1);
  barrier.kind = static_cast<std::uint8_t>(plan::Kind::barrier);
  begin(1, barrier);
  begin(2, all_reduce(1));
  EXPECT_FALSE(link(0).reached(1, 1)) << "nothing was published at all";
  EXPECT_TRUE(look(0, 1));
  EXPECT_EQ(link(0).failure().kind(), ErrorKind::mismatch);
}

TEST_F(MemoryLinks, WhoLeftIsNamedButWhatItDidBeforeCounts) {
  begin(0, all_reduce(1));
  begin(1, all_reduce(1));
  link(1).publish(1);
  link(1).leave();
  EXPECT_TRUE(link(0).wait(
      1, [&] { return link(0).reached(1, 1); }, Deadline::at(Time{})));
  EXPECT_FALSE(link(0).failed());
  EXPECT_TRUE(look(0, 1));
  EXPECT_EQ(link(0).failure().kind(), ErrorKind::peer_lost);
  EXPECT_THAT(link(0).failure().culprits(), ElementsAre(1));
}

TEST_F(MemoryLinks, NobodyRunsFurtherAheadThanOthersRemember) {
  begin(2, all_reduce(1));
  begin(1, all_reduce(1));
  std::uint64_t sequence = 0;
  int held_by = kNobody;
  while (held_by == kNobody && sequence < 1000) {
    held_by = link(0).begin(all_reduce(++sequence), nothing_, 0);
  }
  EXPECT_EQ(held_by, 1);
  EXPECT_LE(sequence, 64U);
  begin(1, all_reduce(20));
  begin(2, all_reduce(20));
  EXPECT_EQ(link(0).begin(all_reduce(sequence), nothing_, 0), kNobody);
}

TEST_F(MemoryLinks, TheFirstFailureWins) {
  link(0).fail({ErrorKind::cancelled, Code::cancelled, "first", {0}});
  link(1).fail({ErrorKind::timeout, Code::deadline_exceeded, "second", {1}});
  EXPECT_EQ(link(2).failure().message(), "first");
  EXPECT_TRUE(look(2, 0)) << "a failed link does not wait";
}

}  // namespace
}  // namespace lockstep::transport
