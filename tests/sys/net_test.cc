// What every implementation of sys::Network does, real or simulated. Two processes: one listens,
// one connects.
#include "sys/net.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <string_view>

#include "sim/network.h"
#include "sys/posix_net.h"
#include "tests/sys/temporary_directory.h"

namespace lockstep::sys {
namespace {

using namespace std::chrono_literals;
using State = Transfer::State;
using Interest = Poller::Interest;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

/// A network to test, and what differs around it.
class Bench {
 public:
  virtual ~Bench() = default;
  virtual Network& server() = 0;
  virtual Network& client() = 0;
  virtual std::string address() = 0;  // free to listen at
  virtual const Clock& clock() = 0;
};

class PosixBench : public Bench {
 public:
  explicit PosixBench(std::string address) : address_(std::move(address)) {}
  Network& server() override { return network_; }
  Network& client() override { return network_; }
  std::string address() override { return address_; }
  const Clock& clock() override { return clock_; }

 private:
  PosixNetwork network_;
  MonotonicClock clock_;
  std::string address_;
};

class PathBench final : public PosixBench {
 public:
  PathBench() : PosixBench("") {}
  std::string address() override { return "unix:" + directory_.path() + "/socket"; }

 private:
  TemporaryDirectory directory_;
};

class SimBench final : public Bench {
 public:
  explicit SimBench(sim::LinkOptions links) : world_(17), network_(world_, links) {}
  Network& server() override { return network_.at("server"); }
  Network& client() override { return network_.at("client"); }
  std::string address() override { return "server:0"; }
  const Clock& clock() override { return world_; }

 private:
  sim::World world_;
  sim::Network network_;
};

struct Variant {
  std::string name;
  std::function<std::unique_ptr<Bench>()> make;
};

class NetTest : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    bench_ = GetParam().make();
    poller_ = bench_->client().poller();
    other_poller_ = bench_->server().poller();
  }

  Deadline soon() { return Deadline::after(bench_->clock(), 10s); }

  /// Polls until the condition holds, sleeping in the poller in between.
  bool await(const std::function<bool()>& holds) {
    const Deadline deadline = soon();
    while (!holds()) {
      if (!poller_->wait(deadline)) return holds();
    }
    return true;
  }

  void open() {
    listener_ = bench_->server().listen(bench_->address());
    near_ = bench_->client().connect(listener_->address());
    poller_->watch(*listener_);
    ASSERT_TRUE(await([&] { return (far_ = listener_->accept()) != nullptr; }));
    poller_->forget(*listener_);
  }

  void send(Connection& to, std::string_view text) {
    poller_->watch(to, Interest::write);
    ASSERT_TRUE(await([&] {
      const Transfer moved = to.write(std::as_bytes(std::span(text.data(), text.size())));
      EXPECT_EQ(moved.state, State::open);
      text.remove_prefix(moved.bytes);
      return text.empty();
    }));
    poller_->forget(to);
  }

  /// Reads until `size` bytes have come or the stream is over.
  std::string receive(Connection& from, std::size_t size, State* end = nullptr) {
    std::string text(size, '\0');
    std::size_t got = 0;
    State state = State::open;
    poller_->watch(from, Interest::read);
    EXPECT_TRUE(await([&] {
      const Transfer moved = from.read(std::as_writable_bytes(std::span(text)).subspan(got));
      got += moved.bytes;
      state = moved.state;
      return got == size || state != State::open;
    }));
    poller_->forget(from);
    if (end != nullptr) *end = state;
    text.resize(got);
    return text;
  }

  State end_of(Connection& from) {
    State end{};
    EXPECT_EQ(receive(from, 1, &end), "");
    return end;
  }

  std::unique_ptr<Bench> bench_;
  std::unique_ptr<Poller> poller_;
  std::unique_ptr<Poller> other_poller_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Connection> near_;
  std::unique_ptr<Connection> far_;
};

TEST_P(NetTest, BytesTravelBothWays) {
  ASSERT_NO_FATAL_FAILURE(open());
  send(*near_, "ping");
  EXPECT_EQ(receive(*far_, 4), "ping");
  send(*far_, "pong!");
  EXPECT_EQ(receive(*near_, 5), "pong!");
  EXPECT_TRUE(near_->error().ok());
}

TEST_P(NetTest, NothingToReadIsOpenAndEmpty) {
  ASSERT_NO_FATAL_FAILURE(open());
  std::byte some[8];
  const Transfer moved = far_->read(some);
  EXPECT_EQ(moved.bytes, 0U);
  EXPECT_EQ(moved.state, State::open);
}

TEST_P(NetTest, EmptySpansMoveNothing) {
  ASSERT_NO_FATAL_FAILURE(open());
  send(*near_, "x");
  EXPECT_EQ(receive(*far_, 1), "x");
  near_->shutdown_write();
  EXPECT_EQ(end_of(*far_), State::closed);
  EXPECT_EQ(far_->read({}).state, State::open);
  EXPECT_EQ(far_->write({}).bytes, 0U);
}

TEST_P(NetTest, AStreamIsWholeAndInOrder) {
  ASSERT_NO_FATAL_FAILURE(open());
  std::string sent(300'000, '\0');
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 2654435761U >> 13);
  std::string got(sent.size(), '\0');
  std::size_t out = 0;
  std::size_t in = 0;
  poller_->watch(*far_, Interest::read);
  EXPECT_TRUE(await([&] {
    poller_->watch(*near_, out < sent.size() ? Interest::write : Interest::none);
    out += near_->write(std::as_bytes(std::span(sent)).subspan(out)).bytes;
    in += far_->read(std::as_writable_bytes(std::span(got)).subspan(in)).bytes;
    return in == got.size();
  }));
  EXPECT_TRUE(got == sent);
  poller_->forget(*near_);
  poller_->forget(*far_);
}

TEST_P(NetTest, AFullBufferBlocksUntilThePeerReads) {
  ASSERT_NO_FATAL_FAILURE(open());
  send(*near_, "x");  // connected now
  const std::string block(1 << 16, 'x');
  std::size_t sent = 1;
  for (;;) {
    const Transfer moved = near_->write(std::as_bytes(std::span(block)));
    ASSERT_EQ(moved.state, State::open);
    if (moved.bytes == 0) break;
    sent += moved.bytes;
    ASSERT_LT(sent, std::size_t{1} << 30) << "the buffer has no bound";
  }
  EXPECT_EQ(receive(*far_, sent).size(), sent);
  send(*near_, "again");
  EXPECT_EQ(receive(*far_, 5), "again");
}

TEST_P(NetTest, HalfCloseLeavesTheOtherDirection) {
  ASSERT_NO_FATAL_FAILURE(open());
  send(*near_, "last");
  near_->shutdown_write();
  near_->shutdown_write();
  EXPECT_EQ(receive(*far_, 4), "last");
  EXPECT_EQ(end_of(*far_), State::closed);
  EXPECT_EQ(end_of(*far_), State::closed) << "the end stays";
  EXPECT_TRUE(far_->error().ok());
  send(*far_, "answer");
  EXPECT_EQ(receive(*near_, 6), "answer");
}

TEST_P(NetTest, HalfCloseWhileConnectingWaitsForTheConnection) {
  listener_ = bench_->server().listen(bench_->address());
  near_ = bench_->client().connect(listener_->address());
  near_->shutdown_write();
  poller_->watch(*listener_);
  ASSERT_TRUE(await([&] { return (far_ = listener_->accept()) != nullptr; }));
  poller_->forget(*listener_);
  send(*far_, "hello");
  EXPECT_EQ(receive(*near_, 5), "hello");
  EXPECT_EQ(end_of(*far_), State::closed);
}

TEST_P(NetTest, WritingAfterHalfCloseIsBroken) {
  ASSERT_NO_FATAL_FAILURE(open());
  send(*near_, "x");
  near_->shutdown_write();
  const std::byte more[1] = {};
  EXPECT_EQ(near_->write(more).state, State::broken);
  EXPECT_FALSE(near_->error().ok());
}

TEST_P(NetTest, ClosingEndsTheStreamAfterItsBytes) {
  ASSERT_NO_FATAL_FAILURE(open());
  send(*near_, "goodbye");
  near_.reset();
  EXPECT_EQ(receive(*far_, 7), "goodbye");
  EXPECT_EQ(end_of(*far_), State::closed);
}

TEST_P(NetTest, WritingToAClosedPeerBreaksForGood) {
  ASSERT_NO_FATAL_FAILURE(open());
  send(*near_, "x");
  EXPECT_EQ(receive(*far_, 1), "x");
  far_.reset();
  const std::byte more[100] = {};
  poller_->watch(*near_, Interest::read_write);
  Transfer moved;
  ASSERT_TRUE(await([&] {
    moved = near_->write(more);
    return moved.state != State::open;
  }));
  EXPECT_EQ(moved.state, State::broken);
  EXPECT_EQ(moved.bytes, 0U);
  std::byte some[4];
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(near_->read(some).state, State::broken);
    EXPECT_EQ(near_->write(more).state, State::broken);
  }
  const Status error = near_->error();
  EXPECT_EQ(error.kind(), ErrorKind::system_error);
  EXPECT_EQ(error.code(), Code::unavailable);
  EXPECT_THAT(error.message(), HasSubstr(listener_->address()));
  poller_->forget(*near_);
}

TEST_P(NetTest, ARefusalShowsAtTheFirstTransfer) {
  listener_ = bench_->server().listen(bench_->address());
  const std::string nobody = listener_->address();
  listener_.reset();
  near_ = bench_->client().connect(nobody);
  poller_->watch(*near_, Interest::read_write);
  const std::byte some[1] = {};
  Transfer moved;
  ASSERT_TRUE(await([&] {
    moved = near_->write(some);
    return moved.state != State::open;
  }));
  EXPECT_EQ(moved.state, State::broken);
  EXPECT_THAT(near_->error().message(), HasSubstr(nobody));
  std::byte into[1];
  EXPECT_EQ(near_->read(into).state, State::broken);
  poller_->forget(*near_);
}

TEST_P(NetTest, AnAddressInUseIsNamed) {
  listener_ = bench_->server().listen(bench_->address());
  try {
    bench_->server().listen(listener_->address());
    FAIL() << "listened twice at " << listener_->address();
  } catch (const SystemError& e) {
    EXPECT_THAT(e.what(), StartsWith("cannot listen at " + listener_->address()));
    EXPECT_EQ(e.code(), Code::already_exists);
  }
}

TEST_P(NetTest, AnAddressCanBeUsedAgain) {
  listener_ = bench_->server().listen(bench_->address());
  const std::string address = listener_->address();
  listener_.reset();
  listener_ = bench_->server().listen(address);
  EXPECT_EQ(listener_->address(), address);
}

TEST_P(NetTest, MalformedAddressesAreConfigErrors) {
  EXPECT_THROW(bench_->server().listen("nonsense"), ConfigError);
  EXPECT_THROW(bench_->client().connect("nonsense"), ConfigError);
}

TEST_P(NetTest, EveryCallerIsAcceptedOnce) {
  listener_ = bench_->server().listen(bench_->address());
  std::vector<std::unique_ptr<Connection>> callers(5);
  std::vector<std::unique_ptr<Connection>> accepted;
  for (auto& caller : callers) caller = bench_->client().connect(listener_->address());
  poller_->watch(*listener_);
  ASSERT_TRUE(await([&] {
    while (auto one = listener_->accept()) accepted.push_back(std::move(one));
    return accepted.size() == callers.size();
  }));
  poller_->forget(*listener_);
  EXPECT_EQ(listener_->accept(), nullptr);
  for (std::size_t i = 0; i < callers.size(); ++i) send(*callers[i], std::to_string(i));
  std::string all;
  for (auto& one : accepted) all += receive(*one, 1);
  EXPECT_THAT(all, testing::UnorderedElementsAre('0', '1', '2', '3', '4'));
  EXPECT_EQ(callers[0]->peer(), listener_->address());
  EXPECT_FALSE(accepted[0]->peer().empty());
}

TEST_P(NetTest, AnUnheardCallerSeesTheListenerClose) {
  listener_ = bench_->server().listen(bench_->address());
  near_ = bench_->client().connect(listener_->address());
  poller_->watch(*near_, Interest::write);
  const std::byte some[1] = {};
  ASSERT_TRUE(await([&] { return near_->write(some).bytes == 1; }));
  listener_.reset();
  EXPECT_NE(end_of(*near_), State::open);
}

TEST_P(NetTest, PollerReportsReadability) {
  ASSERT_NO_FATAL_FAILURE(open());
  other_poller_->watch(*far_, Interest::read);
  EXPECT_FALSE(other_poller_->wait(Deadline::after(bench_->clock(), 1ms)));
  send(*near_, "x");
  EXPECT_TRUE(other_poller_->wait(soon()));
  EXPECT_TRUE(other_poller_->wait(soon())) << "until it is read";
  EXPECT_EQ(receive(*far_, 1), "x");
  EXPECT_FALSE(other_poller_->wait(Deadline::after(bench_->clock(), 1ms)));
  near_.reset();
  EXPECT_TRUE(other_poller_->wait(soon())) << "the end is readable";
  other_poller_->watch(*far_, Interest::none);
  EXPECT_FALSE(other_poller_->wait(Deadline::after(bench_->clock(), 1ms)));
  other_poller_->forget(*far_);
}

TEST_P(NetTest, PollerTellsWhichConnectionsAreReady) {
  ASSERT_NO_FATAL_FAILURE(open());
  const auto second_near = bench_->client().connect(listener_->address());
  std::unique_ptr<Connection> second_far;
  poller_->watch(*listener_);
  ASSERT_TRUE(await([&] { return (second_far = listener_->accept()) != nullptr; }));
  poller_->forget(*listener_);
  other_poller_->watch(*far_, Interest::read);
  other_poller_->watch(*second_far, Interest::read);
  send(*second_near, "x");
  EXPECT_TRUE(other_poller_->wait(soon()));
  EXPECT_THAT(other_poller_->ready(), ElementsAre(second_far.get()));
  other_poller_->wake();
  send(*near_, "x");
  EXPECT_EQ(receive(*second_far, 1), "x");
  const auto only_the_first = [&] {
    EXPECT_TRUE(other_poller_->wait(soon()));
    return other_poller_->ready().size() == 1 && other_poller_->ready().front() == far_.get();
  };
  while (!only_the_first()) {
  }
  other_poller_->forget(*far_);
  EXPECT_THAT(other_poller_->ready(), IsEmpty()) << "nobody looks at what is forgotten";
  EXPECT_FALSE(other_poller_->wait(Deadline::after(bench_->clock(), 1ms)));
  EXPECT_THAT(other_poller_->ready(), IsEmpty());
  other_poller_->forget(*second_far);
}

TEST_P(NetTest, PollerReportsRoomToWrite) {
  ASSERT_NO_FATAL_FAILURE(open());
  send(*near_, "x");
  std::size_t sent = 1;
  const std::string block(1 << 16, 'x');
  while (const std::size_t more = near_->write(std::as_bytes(std::span(block))).bytes) sent += more;
  other_poller_->watch(*near_, Interest::write);
  EXPECT_FALSE(other_poller_->wait(Deadline::after(bench_->clock(), 1ms)));
  EXPECT_EQ(receive(*far_, sent).size(), sent);
  EXPECT_TRUE(other_poller_->wait(soon()));
  other_poller_->forget(*near_);
}

TEST_P(NetTest, WakeEndsOneWait) {
  poller_->wake();
  poller_->wake();
  EXPECT_TRUE(poller_->wait(soon()));
  EXPECT_FALSE(poller_->wait(Deadline::after(bench_->clock(), 1ms)));
  EXPECT_FALSE(poller_->wait(Deadline::at(Time()))) << "a deadline of the past only looks";
}

TEST_P(NetTest, ForgottenConnectionsAreQuiet) {
  ASSERT_NO_FATAL_FAILURE(open());
  send(*near_, "x");
  poller_->watch(*far_, Interest::read);
  EXPECT_TRUE(poller_->wait(soon()));
  poller_->forget(*far_);
  EXPECT_FALSE(poller_->wait(Deadline::after(bench_->clock(), 1ms)));
}

INSTANTIATE_TEST_SUITE_P(
    All, NetTest,
    testing::Values(Variant{"tcp4", [] { return std::make_unique<PosixBench>("127.0.0.1:0"); }},
                    Variant{"tcp6", [] { return std::make_unique<PosixBench>("[::1]:0"); }},
                    Variant{"localhost",
                            [] { return std::make_unique<PosixBench>("localhost:0"); }},
                    Variant{"unix_path", [] { return std::make_unique<PathBench>(); }},
                    Variant{"unix_abstract",
                            [] {
                              return std::make_unique<PosixBench>("unix:@lockstep-net-test-" +
                                                                  std::to_string(::getpid()));
                            }},
                    Variant{"sim", [] { return std::make_unique<SimBench>(sim::LinkOptions{}); }},
                    Variant{"sim_pieces",
                            [] {
                              return std::make_unique<SimBench>(
                                  sim::LinkOptions{.delay = 10us, .jitter = 100us, .piece = 3000});
                            }},
                    Variant{"sim_small",
                            [] {
                              return std::make_unique<SimBench>(
                                  sim::LinkOptions{.delay = 10us, .piece = 7, .buffer = 1000});
                            }}),
    [](const auto& variant) { return variant.param.name; });

}  // namespace
}  // namespace lockstep::sys
