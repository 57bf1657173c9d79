// B21: what a connection alters on the way is found before anybody builds on it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/crc32c.h"
#include "tests/transport/streams.h"

namespace lockstep::transport {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::size_t kNothing = SIZE_MAX;

/// A connection that flips one bit of what is written to it.
class FlippingConnection final : public sys::Connection {
 public:
  FlippingConnection(std::unique_ptr<sys::Connection> inner, std::size_t bit)
      : inner_(std::move(inner)), bit_(bit) {}
  sys::Transfer read(std::span<std::byte> into) noexcept override { return inner_->read(into); }
  sys::Transfer write(std::span<const std::byte> from) noexcept override {
    Bytes bytes(from.begin(), from.end());
    if (bit_ / 8 >= wrote_ && bit_ / 8 - wrote_ < bytes.size()) {
      bytes[bit_ / 8 - wrote_] ^= static_cast<std::byte>(1 << bit_ % 8);
    }
    const auto moved = inner_->write(bytes);
    wrote_ += moved.bytes;
    return moved;
  }
  void shutdown_write() noexcept override { inner_->shutdown_write(); }
  [[nodiscard]] Status error() const override { return inner_->error(); }
  [[nodiscard]] std::string peer() const override { return inner_->peer(); }
  [[nodiscard]] sys::Connection& underlying() noexcept override { return inner_->underlying(); }

 private:
  std::unique_ptr<sys::Connection> inner_;
  std::size_t bit_;
  std::size_t wrote_ = 0;
};

/// What rank 0 sends in an operation has this many bytes before its first data.
constexpr std::size_t kBeforeData = 2 * wire::kHeaderBytes + sizeof(wire::Descriptor);

class CheckedStreams : public StreamsFixture {
 protected:
  /// Two ranks; that bit of what rank 0 writes is flipped.
  void start_with_flip(std::size_t bit, sim::LinkOptions links = {}) {
    check_ = wire::Check::crc32c;
    wrap_ = [bit](int rank, std::unique_ptr<sys::Connection> inner) {
      return std::make_unique<FlippingConnection>(std::move(inner), rank == 0 ? bit : kNothing);
    };
    start(2, links);
    begin_all(broadcast(1, 0, "w"));
  }
};

TEST_F(CheckedStreams, B21EverySingleBitFlipIsFound) {
  const Bytes sent = pattern(28);
  const std::size_t all = kBeforeData + sent.size();
  for (const std::size_t piece : {std::size_t{0}, std::size_t{1}}) {
    for (std::size_t bit = 0; bit <= all * 8; ++bit) {
      start_with_flip(bit, {.piece = piece});
      link(0).send(1, sent);
      const Bytes got = receive(1, 0, sent.size());
      if (bit == all * 8) {
        EXPECT_EQ(got, sent) << "nothing was flipped";
        break;
      }
      ASSERT_LT(got.size(), sent.size()) << "bit " << bit;
      ASSERT_TRUE(link(1).failed()) << "bit " << bit;
      ASSERT_EQ(link(1).failure().kind(), ErrorKind::data_error) << link(1).failure().message();
      ASSERT_EQ(link(1).failure().code(), Code::data_loss);
    }
  }
}

TEST_F(CheckedStreams, B21NamesTheLinkTheOperationAndTheBytes) {
  members_ = {3, 7};
  // The second frame of a message of three.
  const Bytes sent = pattern(3 * wire::kCheckedPayload);
  start_with_flip(8 * (kBeforeData + wire::kCheckedPayload + wire::kHeaderBytes + 5));
  link(0).send(1, sent);
  const Bytes got = receive(1, 0, sent.size());
  EXPECT_GE(got.size(), wire::kCheckedPayload);
  EXPECT_LT(got.size(), 2 * wire::kCheckedPayload) << "the frame is not delivered in full";
  ASSERT_TRUE(link(1).failed());
  const Status why = link(1).failure();
  EXPECT_THAT(why.culprits(), ElementsAre(3, 7));
  EXPECT_THAT(why.message(), AllOf(HasSubstr("altered on its way from rank 3 (" + raw(1, 0).peer() +
                                             ") to rank 7"),
                                   HasSubstr("operation 1 (broadcast float32[7] root 0 \"w\") was"),
                                   HasSubstr("bytes 262144 to 524287"), HasSubstr("CRC-32C")));
  Bytes into(10);
  EXPECT_EQ(link(1).receive(0, into), 0U) << "nothing comes after it";
}

TEST_F(CheckedStreams, B21AnAlteredAnnouncementNamesTheOperationToo) {
  start_with_flip(8 * (wire::kHeaderBytes + 8));
  link(0).send(1, pattern(28));
  EXPECT_EQ(receive(1, 0, 28), Bytes());
  EXPECT_EQ(link(1).failure().kind(), ErrorKind::data_error);
  EXPECT_THAT(link(1).failure().culprits(), ElementsAre(0, 1));
  EXPECT_THAT(link(1).failure().message(), HasSubstr("operation 1 (broadcast float32[7]"));
}

/// Offsets count from the operation's beginning, over all messages of it.
TEST_F(CheckedStreams, B21OffsetsBeginAnewWithEachOperation) {
  const std::size_t operation = kBeforeData + 100 + wire::kHeaderBytes + 50;
  start_with_flip(8 * (2 * operation - 1));
  for (std::uint64_t sequence = 1; sequence <= 2; ++sequence) {
    if (sequence == 2) begin_all(broadcast(2));
    link(0).send(1, pattern(100));
    link(0).send(1, pattern(50));
    EXPECT_EQ(receive(1, 0, 100), pattern(100));
    if (sequence == 1) {
      EXPECT_EQ(receive(1, 0, 50), pattern(50));
    }
  }
  EXPECT_LT(receive(1, 0, 50).size(), 50U);
  EXPECT_THAT(link(1).failure().message(),
              AllOf(HasSubstr("operation 2 ("), HasSubstr("bytes 100 to 149")));
}

TEST_F(CheckedStreams, APeerThatSendsNoChecksumIsRefused) {
  check_ = wire::Check::crc32c;
  start(2);
  begin_all(broadcast(1));
  std::array<std::byte, wire::kHeaderBytes> header;
  wire::encode({.type = wire::FrameType::operation,
                .generation = 5,
                .sequence = 1,
                .length = sizeof(wire::Descriptor)},
               header);
  (void)raw(0, 1).write(header);
  settle();
  Bytes into(28);
  EXPECT_EQ(link(1).receive(0, into), 0U);
  EXPECT_THAT(link(1).failure().message(), HasSubstr("no CRC-32C"));
}

/// A connection that finds out by itself why it is over, as TLS does.
class KnowingConnection final : public sys::Connection {
 public:
  explicit KnowingConnection(Status why) : why_(std::move(why)) {}
  sys::Transfer read(std::span<std::byte> /*into*/) noexcept override {
    return {0, sys::Transfer::State::broken};
  }
  sys::Transfer write(std::span<const std::byte> /*from*/) noexcept override {
    return {0, sys::Transfer::State::broken};
  }
  void shutdown_write() noexcept override {}
  [[nodiscard]] Status error() const override { return why_; }
  [[nodiscard]] std::string peer() const override { return "there"; }

 private:
  Status why_;
};

TEST_F(CheckedStreams, F11WhatTheConnectionFindsEndsTheGenerationToo) {
  wrap_ = [](int rank, std::unique_ptr<sys::Connection> inner) {
    return rank == 0 ? std::move(inner)
                     : std::make_unique<KnowingConnection>(
                           Status(ErrorKind::data_error, Code::data_loss, "it was altered"));
  };
  start(2);
  begin_all(broadcast(1, 0, "w"));
  Bytes into(28);
  EXPECT_EQ(link(1).receive(0, into), 0U);
  ASSERT_TRUE(link(1).failed());
  EXPECT_EQ(link(1).failure().kind(), ErrorKind::data_error);
  EXPECT_THAT(link(1).failure().culprits(), ElementsAre(0, 1));
  EXPECT_THAT(link(1).failure().message(), AllOf(HasSubstr("rank 0 (there) to rank 1"),
                                                 HasSubstr("\"w\""), HasSubstr("it was altered")));
}

/// Whether it reads or writes there.
TEST_F(CheckedStreams, MemoryThatIsShortHereIsThisRanksOwnFailure) {
  wrap_ = [](int rank, std::unique_ptr<sys::Connection> inner) {
    return rank == 0 ? std::move(inner)
                     : std::make_unique<KnowingConnection>(Status(
                           ErrorKind::system_error, Code::resource_exhausted, "no memory for TLS"));
  };
  for (const bool reads : {true, false}) {
    start(2);
    begin_all(broadcast(1));
    Bytes bytes(28);
    if (reads) {
      EXPECT_EQ(link(1).receive(0, bytes), 0U);
    } else {
      link(1).send(0, bytes);
    }
    ASSERT_TRUE(link(1).failed());
    const Status why = link(1).failure();
    EXPECT_EQ(why.kind(), ErrorKind::system_error);
    EXPECT_EQ(why.code(), Code::resource_exhausted);
    EXPECT_THAT(why.culprits(), ElementsAre(1));
    EXPECT_THAT(why.message(), HasSubstr("rank 1: no memory for TLS"));
  }
}

/// What is missing is no damage: the control plane finds out who is gone.
TEST_F(CheckedStreams, AFrameThatIsCutOffIsNeverDeliveredInFull) {
  check_ = wire::Check::crc32c;
  start(2);
  begin_all(broadcast(1));
  const Bytes payload = pattern(100);
  const auto put = [&](wire::FrameType type, std::span<const std::byte> bytes, std::size_t most) {
    std::array<std::byte, wire::kHeaderBytes> header;
    wire::encode({.type = type,
                  .generation = 5,
                  .sequence = 1,
                  .length = static_cast<std::uint32_t>(bytes.size()),
                  .crc = crc32c(bytes)},
                 header);
    (void)raw(0, 1).write(header);
    (void)raw(0, 1).write(bytes.first(most));
  };
  std::array<std::byte, sizeof(wire::Descriptor)> descriptor;
  wire::encode(broadcast(1), descriptor);
  put(wire::FrameType::operation, descriptor, descriptor.size());
  put(wire::FrameType::data, payload, 99);
  raw(0, 1).shutdown_write();
  EXPECT_EQ(receive(1, 0, 100).size(), 99U);
  EXPECT_FALSE(link(1).failed());
  EXPECT_TRUE(link(1).suspect(0));
}

/// Where TLS or a machine's own memory carries the bytes, they are not looked at.
TEST_F(CheckedStreams, NothingIsCheckedWhereItIsNotDue) {
  check_ = wire::Check::none;
  wrap_ = [](int rank, std::unique_ptr<sys::Connection> inner) {
    return std::make_unique<FlippingConnection>(std::move(inner),
                                                rank == 0 ? 8 * kBeforeData : kNothing);
  };
  start(2);
  begin_all(broadcast(1));
  const Bytes sent = pattern(3 * wire::kCheckedPayload);
  link(0).send(1, sent);
  const Bytes got = receive(1, 0, sent.size());
  ASSERT_EQ(got.size(), sent.size());
  EXPECT_NE(got[0], sent[0]);
  EXPECT_TRUE(std::equal(got.begin() + 1, got.end(), sent.begin() + 1)) << "in one frame";
}

}  // namespace
}  // namespace lockstep::transport
