// TLS over real and simulated connections: who gets in, and what arrives.
#include "transport/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "lockstep/error.h"
#include "tests/transport/tls_wires.h"

namespace lockstep::transport {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using State = TlsConnection::State;
using Moved = sys::Transfer::State;
using Interest = sys::Poller::Interest;

constexpr const char* kWho = "lockstep1|1|client=1|server=0|data|job";

PairKey key_number(unsigned seed) {
  const Bytes bytes = pattern(PairKey::kBytes, seed);
  return PairKey(std::span<const std::byte, PairKey::kBytes>(bytes));
}

std::optional<PairKey> know_one(std::string_view who) {
  if (who != kWho) return std::nullopt;
  return key_number(1);
}

struct Variant {
  const char* name;
  std::function<std::unique_ptr<Wires>()> make;
};

class Tls : public testing::TestWithParam<Variant> {
 protected:
  void open(const PairKey& key = key_number(1), const std::string& who = kWho,
            const TlsOptions& options = {}) {
    client_.reset();
    server_.reset();
    wires_ = GetParam().make();
    client_ = TlsClient(options).connect(
        std::make_unique<Tap>(std::move(wires_->client), client_tap_), who, key);
    server_ = TlsServer(know_one, options)
                  .accept(std::make_unique<Tap>(std::move(wires_->server), server_tap_));
  }

  /// Drives the world until `holds`; false if it never does.
  bool until(const std::function<bool()>& holds) {
    const Deadline deadline = Deadline::after(20s);
    while (!holds()) {
      if (deadline.passed()) return false;
      wires_->pass();
    }
    return true;
  }

  bool shake() {
    return until([&] {
      const State one = client_->handshake();
      const State other = server_->handshake();
      return one != State::pending && other != State::pending;
    });
  }
  void open_and_shake(const TlsOptions& options = {}) {
    open(key_number(1), kWho, options);
    ASSERT_TRUE(shake());
    ASSERT_EQ(client_->handshake(), State::done) << client_->error().message();
    ASSERT_EQ(server_->handshake(), State::done) << server_->error().message();
  }

  /// Writes all and reads it at the other end.
  void expect_passes(sys::Connection& from, sys::Connection& to, const Bytes& bytes) {
    std::span<const std::byte> left = bytes;
    Bytes got(bytes.size());
    std::size_t size = 0;
    EXPECT_TRUE(until([&] {
      left = left.subspan(from.write(left).bytes);
      size += to.read(std::span(got).subspan(size)).bytes;
      return size == got.size();
    })) << from.error().message()
        << to.error().message();
    EXPECT_TRUE(got == bytes);
    EXPECT_TRUE(left.empty());
  }

  /// Reads until the stream is over.
  std::pair<Bytes, Moved> drain(sys::Connection& from) {
    Bytes got;
    Bytes some(1000);
    sys::Transfer moved;
    EXPECT_TRUE(until([&] {
      moved = from.read(some);
      got.insert(got.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(moved.bytes));
      return moved.state != Moved::open;
    }));
    return {got, moved.state};
  }

  Tap::What client_tap_;
  Tap::What server_tap_;
  std::unique_ptr<Wires> wires_;
  std::unique_ptr<TlsConnection> client_;
  std::unique_ptr<TlsConnection> server_;
};

TEST_P(Tls, TheRightKeyGetsIn) {
  open();
  EXPECT_EQ(server_->identity(), "");
  EXPECT_TRUE(client_->wants_write());
  EXPECT_TRUE(server_->wants_read());
  ASSERT_TRUE(shake());
  EXPECT_EQ(client_->handshake(), State::done) << client_->error().message();
  EXPECT_EQ(server_->handshake(), State::done) << server_->error().message();
  EXPECT_EQ(server_->identity(), kWho);
  EXPECT_EQ(client_->identity(), kWho);
  EXPECT_EQ(client_->cipher(), "TLS_AES_128_GCM_SHA256");
  EXPECT_EQ(server_->cipher(), "TLS_AES_128_GCM_SHA256");
  EXPECT_FALSE(client_->wants_read() || client_->wants_write());
  expect_passes(*client_, *server_, pattern(100, 1));
  expect_passes(*server_, *client_, pattern(100, 2));
  EXPECT_TRUE(client_->error().ok());
}

TEST_P(Tls, ReadingAndWritingDriveTheHandshake) {
  open();
  expect_passes(*client_, *server_, pattern(40'000, 1));
  expect_passes(*server_, *client_, pattern(40'000, 2));
}

TEST_P(Tls, NothingIsReadableOnTheWire) {
  client_tap_.keep = true;
  open();
  const Bytes secret = pattern(64, 5);
  expect_passes(*client_, *server_, secret);
  const auto& wire = client_tap_.written;
  EXPECT_EQ(std::search(wire.begin(), wire.end(), secret.begin(), secret.begin() + 8), wire.end());
}

TEST_P(Tls, AWrongKeyIsRefusedByBoth) {
  open(key_number(2));
  ASSERT_TRUE(shake());
  for (const TlsConnection* end : {client_.get(), server_.get()}) {
    EXPECT_EQ(end->error().kind(), ErrorKind::config_error);
    EXPECT_EQ(end->error().code(), Code::unauthenticated);
    EXPECT_THAT(end->error().message(),
                AllOf(HasSubstr("wrong key"), HasSubstr(end->peer()), HasSubstr(kWho)));
  }
  std::byte some[10];
  EXPECT_EQ(client_->read(some).state, Moved::broken);
  EXPECT_EQ(server_->read(some).state, Moved::broken);
  EXPECT_EQ(client_->write(some).state, Moved::broken);
  EXPECT_EQ(server_->write(some).state, Moved::broken);
  EXPECT_EQ(server_->identity(), "") << "nobody is known";
}

TEST_P(Tls, AStrangerIsTreatedLikeAWrongKey) {
  server_tap_.keep = true;
  open(key_number(2));
  ASSERT_TRUE(shake());
  const Bytes wrong_key = std::exchange(server_tap_.written, {});
  for (const std::string& who :
       {std::string("x"), std::string("\0\n\xff", 3), std::string(256, 'w')}) {
    open(key_number(1), who);
    ASSERT_TRUE(shake());
    EXPECT_EQ(std::exchange(server_tap_.written, {}), wrong_key) << "the answer tells them apart";
    EXPECT_EQ(server_->error().code(), Code::unauthenticated);
    EXPECT_THAT(server_->error().message(), AllOf(HasSubstr("wrong key"), Not(HasSubstr("\n"))));
    EXPECT_THAT(client_->error().message(), HasSubstr("wrong key"));
  }
}

TEST_P(Tls, AnUnusableIdentityIsTheCallersFault) {
  wires_ = GetParam().make();
  EXPECT_THROW((void)TlsClient().connect(std::move(wires_->client), "", key_number(1)),
               InvalidUsage);
}

TEST_P(Tls, ALookupThatThrowsRefuses) {
  wires_ = GetParam().make();
  client_ = TlsClient().connect(std::move(wires_->client), kWho, key_number(1));
  server_ = TlsServer([](std::string_view) -> std::optional<PairKey> {
              throw 1;
            }).accept(std::move(wires_->server));
  ASSERT_TRUE(shake());
  EXPECT_EQ(client_->handshake(), State::failed);
  EXPECT_EQ(server_->handshake(), State::failed);
}

TEST_P(Tls, APeerByteByByte) {
  client_tap_.at_most = 1;
  server_tap_.at_most = 1;
  open();
  expect_passes(*client_, *server_, pattern(3000, 1));
  expect_passes(*server_, *client_, pattern(3000, 2));
}

TEST_P(Tls, HalfClosedAndOn) {
  open_and_shake();
  const Bytes last = pattern(20'000, 3);
  expect_passes(*client_, *server_, last);
  client_->shutdown_write();
  EXPECT_EQ(drain(*server_), std::pair(Bytes(), Moved::closed));
  expect_passes(*server_, *client_, last);
  server_->shutdown_write();
  EXPECT_EQ(drain(*client_), std::pair(Bytes(), Moved::closed));
  EXPECT_TRUE(client_->error().ok());
  EXPECT_EQ(client_->write(last).state, Moved::broken);
  EXPECT_THAT(client_->error().message(), HasSubstr("after shutdown_write()"));
}

TEST_P(Tls, AGoodbyeBeforeTheHandshakeWaitsForIt) {
  open();
  client_->shutdown_write();
  EXPECT_TRUE(until([&] {
    std::byte some[1];
    (void)client_->read(some);
    return server_->read(some).state == Moved::closed;
  }));
}

TEST_P(Tls, ADestroyedConnectionHasSaidGoodbye) {
  open_and_shake();
  const Bytes bytes = pattern(50, 1);
  EXPECT_EQ(client_->write(bytes).bytes, 50U);
  client_.reset();
  EXPECT_EQ(drain(*server_), std::pair(bytes, Moved::closed));
}

TEST_P(Tls, AnEndWithoutGoodbyeIsATruncation) {
  open_and_shake();
  const Bytes bytes = pattern(50, 1);
  EXPECT_EQ(client_->write(bytes).bytes, 50U);
  client_tap_.cut = true;
  client_.reset();
  EXPECT_EQ(drain(*server_), std::pair(bytes, Moved::broken));
  EXPECT_EQ(server_->error().kind(), ErrorKind::peer_lost);
  EXPECT_THAT(server_->error().message(), AllOf(HasSubstr("cut off"), HasSubstr(server_->peer())));
}

TEST_P(Tls, AnEndInsideARecordIsATruncation) {
  open_and_shake();
  client_tap_.budget = 100;
  EXPECT_EQ(client_->write(pattern(500, 1)).bytes, 0U);
  client_.reset();
  EXPECT_EQ(drain(*server_), std::pair(Bytes(), Moved::broken));
}

TEST_P(Tls, AnEndDuringTheHandshake) {
  open();
  client_tap_.budget = 100;
  client_->handshake();
  client_.reset();
  ASSERT_TRUE(until([&] { return server_->handshake() != State::pending; }));
  EXPECT_EQ(server_->error().code(), Code::unavailable);
  EXPECT_THAT(server_->error().message(), HasSubstr("hung up"));
}

TEST_P(Tls, AnAlteredRecordIsFound) {
  open_and_shake();
  expect_passes(*client_, *server_, pattern(10, 1));
  client_tap_.flip = client_tap_.wrote + 2000;
  EXPECT_EQ(client_->write(pattern(5000, 1)).bytes, 5000U);
  EXPECT_EQ(drain(*server_), std::pair(Bytes(), Moved::broken));
  EXPECT_EQ(server_->error().code(), Code::data_loss);
  EXPECT_THAT(server_->error().message(), HasSubstr("altered"));
}

TEST_P(Tls, AnAlteredHandshakeIsFound) {
  std::size_t failed = 0;
  for (std::size_t at = 0; at < 240; at += 7) {
    client_tap_ = {};
    client_tap_.flip = at;
    open();
    // A greeting that claims to be longer than it is just waits for more.
    for (int turn = 0; turn < 3000 && client_->handshake() == State::pending; ++turn) {
      wires_->pass();
      (void)server_->handshake();
    }
    EXPECT_NE(server_->handshake(), State::done) << at;
    failed += server_->handshake() == State::failed ? 1 : 0;
  }
  EXPECT_GT(failed, 30U);
}

// A full socket stops writes in the middle of a record; the rest is offered in other pieces.
TEST_P(Tls, WritesThatStopAnywhere) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    client_tap_ = {};
    open_and_shake();
    const Bytes sent = pattern(60'000, static_cast<unsigned>(round));
    std::span<const std::byte> left = sent;
    Bytes got;
    Bytes some(7000);
    ASSERT_TRUE(until([&] {
      client_tap_.budget = random() % 9000;
      const std::size_t offer = 1 + random() % std::max<std::size_t>(1, left.size());
      if (!left.empty()) left = left.subspan(client_->write(left.first(offer)).bytes);
      const std::size_t now = server_->read(some).bytes;
      got.insert(got.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(now));
      return got.size() >= sent.size();
    }));
    EXPECT_TRUE(left.empty());
    ASSERT_TRUE(got == sent) << "round " << round;
  }
}

TEST_P(Tls, AGoodbyeThatDidNotFitLeavesLater) {
  open_and_shake();
  client_tap_.budget = 3;
  client_->shutdown_write();
  EXPECT_TRUE(client_->wants_write());
  client_tap_.budget = SIZE_MAX;
  std::byte some[1];
  (void)client_->read(some);
  EXPECT_FALSE(client_->wants_write());
  EXPECT_EQ(drain(*server_), std::pair(Bytes(), Moved::closed));
}

TEST_P(Tls, KeysChangeOnTheWay) {
  open_and_shake({.records_per_key = 3});
  std::mt19937 random(5);
  for (int i = 0; i < 60; ++i) {
    client_tap_.budget = random() % 2 ? SIZE_MAX : 40'000;
    expect_passes(*client_, *server_, pattern(1 + random() % 30'000, 1));
    client_tap_.budget = SIZE_MAX;
    expect_passes(*server_, *client_, pattern(1 + random() % 30'000, 2));
  }
  EXPECT_TRUE(client_->error().ok());
}

// Both peers may come to a change of keys with full sockets: each must still read.
TEST_P(Tls, AChangeOfKeysThatDoesNotFitKeepsNobodyFromReading) {
  for (std::size_t room = 0; room < 60; room += 4) {
    client_tap_ = {};
    open_and_shake({.records_per_key = 1});
    expect_passes(*client_, *server_, pattern(10, 1));
    client_tap_.budget = room;
    const Bytes late = pattern(100, 2);
    EXPECT_EQ(client_->write(late).bytes, 0U);
    expect_passes(*server_, *client_, pattern(50'000, 3));
    client_tap_.budget = SIZE_MAX;
    expect_passes(*client_, *server_, late);
  }
}

// Whoever reads until nothing comes has everything, whatever lies in OpenSSL.
TEST_P(Tls, ReadUntilNothingLeavesNothing) {
  open_and_shake({.records_per_key = 2});
  const Bytes sent = pattern(30'000, 1);
  std::span<const std::byte> left = sent;
  ASSERT_TRUE(until([&] {
    left = left.subspan(client_->write(left).bytes);
    return left.empty();
  }));
  Bytes got;
  std::byte some[100];
  ASSERT_TRUE(until([&] {
    for (;;) {
      const std::size_t now = server_->read(some).bytes;
      if (now == 0) break;
      got.insert(got.end(), some, some + now);
    }
    EXPECT_FALSE(server_->pending());
    return got.size() == sent.size();
  }));
  EXPECT_TRUE(got == sent);
}

TEST_P(Tls, PendingTellsWhatThePollerCannot) {
  open_and_shake();
  EXPECT_EQ(client_->write(pattern(1000, 1)).bytes, 1000U);
  std::byte some[10];
  ASSERT_TRUE(until([&] { return server_->read(some).bytes == 10; }));
  EXPECT_TRUE(server_->pending());
  Bytes rest(990);
  EXPECT_EQ(server_->read(rest).bytes, 990U);
  EXPECT_FALSE(server_->pending());
}

TEST_P(Tls, OnInPlainText) {
  client_tap_.keep = true;
  open_and_shake();
  const std::size_t handshake = client_tap_.written.size();
  const auto client = client_->leave_tls();
  const Bytes bytes = pattern(50'000, 1);
  // The client's words may arrive before the server has left.
  EXPECT_GT(client->write(std::span(bytes).first(20)).bytes, 0U);
  for (int i = 0; i < 100; ++i) wires_->pass();
  const auto server = server_->leave_tls();
  Bytes first(20);
  std::size_t got = 0;
  ASSERT_TRUE(until([&] {
    got += server->read(std::span(first).subspan(got)).bytes;
    return got == first.size();
  }));
  EXPECT_TRUE(std::equal(first.begin(), first.end(), bytes.begin()));
  expect_passes(*client, *server, bytes);
  expect_passes(*server, *client, bytes);
  const auto begin = client_tap_.written.begin() + static_cast<std::ptrdiff_t>(handshake + 20);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), begin)) << "not plain";
  client_.reset();
  server_.reset();
  expect_passes(*client, *server, pattern(10, 1));
}

// The client may leave as soon as its own handshake is done, with plain bytes right behind.
TEST_P(Tls, PlainBytesRightBehindTheHandshakeAreNotSwallowed) {
  open();
  const Bytes bytes = pattern(3000, 9);
  std::unique_ptr<sys::Connection> client;
  ASSERT_TRUE(until([&] {
    if (client_->handshake() == State::done) return true;
    (void)server_->handshake();
    return false;
  }));
  client = client_->leave_tls();
  std::span<const std::byte> left = bytes;
  for (int i = 0; i < 10'000 && !left.empty(); ++i) {
    left = left.subspan(client->write(left).bytes);
    wires_->pass();
  }
  ASSERT_TRUE(left.empty());
  ASSERT_TRUE(until([&] { return server_->handshake() == State::done; }));
  const auto server = server_->leave_tls();
  Bytes got(bytes.size());
  std::size_t size = 0;
  ASSERT_TRUE(until([&] {
    size += server->read(std::span(got).subspan(size)).bytes;
    return size == got.size();
  }));
  EXPECT_TRUE(got == bytes);
}

TEST_P(Tls, LeavingIsRefusedAtTheWrongTime) {
  open();
  EXPECT_THROW((void)client_->leave_tls(), InvalidUsage) << "not yet authenticated";
  ASSERT_TRUE(shake());
  std::byte some[1];
  (void)client_->read(some);
  EXPECT_THROW((void)client_->leave_tls(), InvalidUsage) << "may have read ahead";
  (void)server_->write(some);
  EXPECT_THROW((void)server_->leave_tls(), InvalidUsage);
}

TEST_P(Tls, WhatHasLeftIsOver) {
  open_and_shake();
  const auto plain = client_->leave_tls();
  std::byte some[1];
  EXPECT_EQ(client_->read(some).state, Moved::broken);
  EXPECT_EQ(client_->write(some).state, Moved::broken);
  EXPECT_THAT(client_->error().message(), HasSubstr("left TLS"));
  client_->shutdown_write();
}

TEST_P(Tls, APollerWatchesTheWrapper) {
  open();
  const auto poller = wires_->poller();
  const auto watch = [&](TlsConnection& end) {
    poller->watch(end, end.wants_write() ? Interest::write : Interest::read);
  };
  for (int turns = 0;; ++turns) {
    const State one = client_->handshake();
    const State other = server_->handshake();
    if (one == State::done && other == State::done) break;
    watch(*client_);
    watch(*server_);
    ASSERT_TRUE(poller->wait(Deadline::after(100s)));
    ASSERT_LT(turns, 1000);
  }
  poller->forget(*client_);
  poller->forget(*server_);
  EXPECT_FALSE(poller->wait(Deadline::after(Time{}, 0s))) << "forgotten";
}

std::vector<Variant> variants() {
  return {{"pair", [] { return std::make_unique<PairWires>(); }},
          {"tcp", [] { return std::make_unique<TcpWires>(); }},
          {"sim", [] { return std::make_unique<SimWires>(sim::LinkOptions{.delay = 1ms}); }},
          {"sim_pieces", [] {
             return std::make_unique<SimWires>(
                 sim::LinkOptions{.delay = 1ms, .jitter = 1ms, .piece = 61, .buffer = 40'000});
           }}};
}
INSTANTIATE_TEST_SUITE_P(Over, Tls, testing::ValuesIn(variants()),
                         [](const auto& variant) { return std::string(variant.param.name); });

/// Moves `size` bytes each way, on its own thread and poller.
void exchange(TlsConnection& end, const Bytes& out, Bytes& in) {
  sys::PosixNetwork network;
  const auto poller = network.poller();
  const Deadline deadline = Deadline::after(50s);
  std::span<const std::byte> left = out;
  std::size_t got = 0;
  while (!left.empty() || got < in.size()) {
    const sys::Transfer sent = end.write(left);
    const sys::Transfer read = end.read(std::span(in).subspan(got));
    ASSERT_EQ(sent.state, Moved::open) << end.error().message();
    ASSERT_EQ(read.state, Moved::open) << end.error().message();
    left = left.subspan(sent.bytes);
    got += read.bytes;
    if (sent.bytes > 0 || read.bytes > 0) continue;
    poller->watch(end, left.empty() && !end.wants_write() ? Interest::read : Interest::read_write);
    ASSERT_TRUE(poller->wait(deadline));
  }
  poller->forget(end);
}

TEST(TlsThreads, SixtyFourMebibytesBothWaysAtOnce) {
  for (const bool tcp : {true, false}) {
    std::unique_ptr<Wires> wires;
    if (tcp) {
      wires = std::make_unique<TcpWires>();
    } else {
      wires = std::make_unique<PairWires>();
    }
    const auto client = TlsClient().connect(std::move(wires->client), kWho, key_number(1));
    const auto server = TlsServer(know_one).accept(std::move(wires->server));
    const Bytes up = pattern(std::size_t{64} << 20, 1);
    const Bytes down = pattern(std::size_t{64} << 20, 2);
    Bytes at_server(up.size());
    Bytes at_client(down.size());
    {
      const std::jthread one([&] { exchange(*client, up, at_client); });
      const std::jthread other([&] { exchange(*server, down, at_server); });
    }
    EXPECT_TRUE(at_server == up);
    EXPECT_TRUE(at_client == down);
  }
}

TEST(TlsThreads, OneServerManyThreads) {
  const TlsClient client_side;
  const TlsServer server_side(know_one);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < 10; ++turn) {
        PairWires wires;
        const auto client = client_side.connect(std::move(wires.client), kWho, key_number(1));
        const auto server = server_side.accept(std::move(wires.server));
        for (int step = 0; step < 100 && server->handshake() == State::pending; ++step) {
          (void)client->handshake();
        }
        EXPECT_EQ(server->handshake(), State::done);
      }
    });
  }
}

}  // namespace
}  // namespace lockstep::transport
