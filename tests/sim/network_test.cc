// Each fault of the simulated network, alone. What it shares with real sockets is in
// tests/sys/net_test.cc.
#include "sim/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace lockstep::sim {
namespace {

using namespace std::chrono_literals;
using sys::Transfer;
using State = Transfer::State;
using testing::HasSubstr;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// One connection from "b" to a listener of "a", made before the test begins.
struct Pair {
  explicit Pair(LinkOptions links = {.delay = 1ms}, std::uint64_t seed = 1)
      : world(seed), network(world, links) {
    listener = network.at("a").listen("a:4000");
    b = network.at("b").connect("a:4000");
    world.run_until([&] { return (a = listener->accept()) != nullptr; }, Deadline::never());
    while (world.step()) {
    }
  }

  std::string read_all(sys::Connection& from, State& state) {
    std::string text(1 << 20, '\0');
    std::size_t size = 0;
    for (;;) {
      const Transfer moved =
          from.read(std::as_writable_bytes(std::span(text.data() + size, text.size() - size)));
      state = moved.state;
      size += moved.bytes;
      if (moved.bytes == 0) break;
    }
    text.resize(size);
    return text;
  }
  std::string read_all(sys::Connection& from) {
    State ignored{};
    return read_all(from, ignored);
  }
  State state_of(sys::Connection& from) {
    State state{};
    read_all(from, state);
    return state;
  }

  World world;
  Network network;
  std::unique_ptr<sys::Listener> listener;
  std::unique_ptr<sys::Connection> a;
  std::unique_ptr<sys::Connection> b;
};

TEST(SimNetwork, BytesArriveAfterTheDelay) {
  Pair pair({.delay = 5ms});
  pair.b->write(bytes_of("hello"));
  pair.world.run_for(4999us);
  EXPECT_EQ(pair.read_all(*pair.a), "");
  pair.world.run_for(1us);
  EXPECT_EQ(pair.read_all(*pair.a), "hello");
}

TEST(SimNetwork, JitterDelaysButKeepsTheOrder) {
  Pair pair({.delay = 1ms, .jitter = 10ms});
  std::string sent;
  std::string got;
  Time first = Time::max();
  Time last{};
  const Time start = pair.world.now();
  for (char c = 'a'; c <= 'z'; ++c) {
    sent += c;
    pair.b->write(bytes_of(std::string_view(&c, 1)));
    pair.world.run_for(100us);
    got += pair.read_all(*pair.a);
  }
  while (pair.world.step()) {
    const std::string more = pair.read_all(*pair.a);
    if (more.empty()) continue;
    got += more;
    first = std::min(first, pair.world.now());
    last = pair.world.now();
  }
  EXPECT_EQ(got, sent);
  EXPECT_GE(first, start + 1ms);
  EXPECT_LE(last, start + 26 * 100us + 11ms);
  EXPECT_GT(last, start + 26 * 100us + 1ms);
}

TEST(SimNetwork, DirectionsHaveTheirOwnDelay) {
  Pair pair({.delay = 1ms});
  pair.network.set_link({.from = "a", .to = "b"}, {.delay = 1s});
  pair.a->write(bytes_of("slow"));
  pair.b->write(bytes_of("fast"));
  pair.world.run_for(1ms);
  EXPECT_EQ(pair.read_all(*pair.a), "fast");
  EXPECT_EQ(pair.read_all(*pair.b), "");
  pair.world.run_for(999ms);
  EXPECT_EQ(pair.read_all(*pair.b), "slow");
}

TEST(SimNetwork, DeliversByteByByte) {
  Pair pair({.delay = 1ms, .piece = 1});
  pair.b->write(bytes_of("abc"));
  std::string got;
  int arrivals = 0;
  while (pair.world.step()) {
    const std::string piece = pair.read_all(*pair.a);
    EXPECT_EQ(piece.size(), 1U);
    got += piece;
    ++arrivals;
  }
  EXPECT_EQ(got, "abc");
  EXPECT_EQ(arrivals, 3);
}

TEST(SimNetwork, DeliversSmallRandomPieces) {
  Pair pair({.delay = 1ms, .piece = 5});
  const std::string sent(1000, 'x');
  pair.b->write(bytes_of(sent));
  std::size_t got = 0;
  std::vector<int> sizes(6);
  while (pair.world.step()) {
    const std::size_t piece = pair.read_all(*pair.a).size();
    ASSERT_GE(piece, 1U);
    ASSERT_LE(piece, 5U);
    ++sizes[piece];
    got += piece;
  }
  EXPECT_EQ(got, 1000U);
  for (int size = 1; size <= 5; ++size) EXPECT_GT(sizes[size], 0) << size;
}

TEST(SimNetwork, TheBufferIsBoundedUntilThePeerReads) {
  Pair pair({.delay = 1ms, .buffer = 100});
  EXPECT_EQ(pair.b->write(bytes_of(std::string(150, 'x'))).bytes, 100U);
  EXPECT_EQ(pair.b->write(bytes_of("y")).bytes, 0U);
  pair.world.run_for(1ms);
  EXPECT_EQ(pair.b->write(bytes_of("y")).bytes, 0U) << "arrived is not read";
  const auto before = pair.network.at("b").activity();
  std::byte some[30];
  EXPECT_EQ(pair.a->read(some).bytes, 30U);
  EXPECT_NE(pair.network.at("b").activity(), before);
  EXPECT_EQ(pair.b->write(bytes_of(std::string(150, 'y'))).bytes, 30U);
  pair.world.run_for(1ms);
  EXPECT_EQ(pair.read_all(*pair.a), std::string(70, 'x') + std::string(30, 'y'));
}

TEST(SimNetwork, BandwidthLimitsTheRate) {
  Pair pair({.delay = 1ms, .buffer = 1000, .bytes_per_second = 10'000});
  const Time start = pair.world.now();
  std::size_t sent = 0;
  std::size_t got = 0;
  const std::string chunk(250, 'x');
  while (got < 10'000) {
    while (sent < 10'000 && pair.b->write(bytes_of(chunk)).bytes > 0) sent += chunk.size();
    ASSERT_TRUE(pair.world.step());
    got += pair.read_all(*pair.a).size();
  }
  EXPECT_EQ(pair.world.now() - start, 1s + 1ms);
}

TEST(SimNetwork, CutBreaksBothEndsAtOnceAndNewConnectionsWork) {
  Pair pair;
  pair.a->write(bytes_of("arrived"));
  pair.world.run_for(1ms);
  pair.b->write(bytes_of("lost"));
  pair.network.cut("a", "b");
  State state{};
  EXPECT_EQ(pair.read_all(*pair.b, state), "arrived") << "what arrived can be read";
  EXPECT_EQ(state, State::broken);
  EXPECT_EQ(pair.a->write(bytes_of("x")).state, State::broken);
  EXPECT_EQ(pair.state_of(*pair.a), State::broken);
  EXPECT_THAT(pair.a->error().message(), HasSubstr("b:"));
  EXPECT_THAT(pair.b->error().message(), HasSubstr("a:4000: reset: the link was cut"));

  auto again = pair.network.at("b").connect("a:4000");
  std::unique_ptr<sys::Connection> accepted;
  EXPECT_TRUE(pair.world.run_until([&] { return (accepted = pair.listener->accept()) != nullptr; },
                                   Deadline::never()));
}

TEST(SimNetwork, CutSparesOtherLinks) {
  Pair pair;
  pair.network.cut("a", "c");
  pair.b->write(bytes_of("x"));
  pair.world.run_for(1ms);
  EXPECT_EQ(pair.read_all(*pair.a), "x");
}

TEST(SimNetwork, HalfCloseEndsOneDirection) {
  Pair pair;
  pair.b->write(bytes_of("last"));
  pair.network.half_close({.from = "b", .to = "a"});
  State state{};
  EXPECT_EQ(pair.state_of(*pair.a), State::open) << "the end takes its time too";
  pair.world.run_for(1ms);
  EXPECT_EQ(pair.read_all(*pair.a, state), "last");
  EXPECT_EQ(state, State::closed);
  pair.a->write(bytes_of("still"));
  pair.world.run_for(1ms);
  EXPECT_EQ(pair.read_all(*pair.b, state), "still");
  EXPECT_EQ(state, State::open);
}

TEST(SimNetwork, SilenceOfOneDirection) {
  Pair pair({.delay = 1ms, .buffer = 10});
  pair.network.silence({.from = "b", .to = "a"});
  EXPECT_EQ(pair.b->write(bytes_of("123456")).bytes, 6U);
  pair.a->write(bytes_of("heard"));
  pair.world.run_for(24h);
  State state{};
  EXPECT_EQ(pair.read_all(*pair.a, state), "");
  EXPECT_EQ(state, State::open) << "no error, ever";
  EXPECT_EQ(pair.read_all(*pair.b), "heard");
  EXPECT_EQ(pair.b->write(bytes_of("7890abc")).bytes, 4U) << "until the buffer is full";
  EXPECT_EQ(pair.b->write(bytes_of("x")).state, State::open);
  pair.network.heal({.from = "b", .to = "a"});
  pair.world.run_for(1ms);
  EXPECT_EQ(pair.read_all(*pair.a), "1234567890");
}

TEST(SimNetwork, SilenceHoldsWhatIsUnderWay) {
  Pair pair({.delay = 10ms});
  pair.b->write(bytes_of("x"));
  pair.world.run_for(5ms);
  pair.network.silence_all("a");
  pair.world.run_for(1s);
  EXPECT_EQ(pair.read_all(*pair.a), "");
  pair.network.heal_all("a");
  pair.world.run_for(1ms);
  EXPECT_EQ(pair.read_all(*pair.a), "x");
}

TEST(SimNetwork, SilencingAProcessSilencesAllItsLinks) {
  Pair pair;
  auto other_listener = pair.network.at("c").listen("c:1");
  auto to_c = pair.network.at("b").connect("c:1");
  pair.world.run_for(10ms);
  auto c = other_listener->accept();
  ASSERT_NE(c, nullptr);
  pair.network.silence_all("b");
  for (auto* end : {pair.a.get(), pair.b.get(), c.get(), to_c.get()}) end->write(bytes_of("x"));
  pair.network.kill("b");
  pair.world.run_for(1h);
  for (auto* end : {pair.a.get(), c.get()}) {
    EXPECT_EQ(pair.read_all(*end), "");
    EXPECT_EQ(pair.state_of(*end), State::open) << "not even the death is heard of";
  }
}

TEST(SimNetwork, ConnectingToASilentHostTimesOut) {
  Pair pair;
  pair.network.silence_all("a");
  auto late = pair.network.at("b").connect("a:4000");
  pair.world.run_for(120s);
  EXPECT_EQ(pair.state_of(*late), State::open);
  pair.world.run_for(10s);
  EXPECT_EQ(late->write(bytes_of("x")).state, State::broken);
  EXPECT_EQ(late->error().code(), Code::deadline_exceeded);
  EXPECT_TRUE(pair.world.idle());
}

TEST(SimNetwork, ConnectingSurvivesAShortSilence) {
  for (const auto& way : {Network::Way{"b", "a"}, Network::Way{"a", "b"}}) {
    Pair pair;
    pair.network.silence(way);
    auto late = pair.network.at("b").connect("a:4000");
    pair.world.run_for(2s);
    pair.network.heal(way);
    EXPECT_TRUE(pair.world.run_until([&] { return late->write(bytes_of("x")).bytes == 1; },
                                     Deadline::after(pair.world, 10s)));
    std::unique_ptr<sys::Connection> accepted = pair.listener->accept();
    ASSERT_NE(accepted, nullptr);
    EXPECT_EQ(pair.listener->accept(), nullptr) << "one connect, one connection";
  }
}

TEST(SimNetwork, KillingAProcessEndsItsConnectionsAfterTheDelay) {
  int ended = 0;
  int reset = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Pair pair({.delay = 1ms}, seed);
    pair.b->write(bytes_of("first"));
    pair.world.run_for(1ms);
    pair.b->write(bytes_of("second"));
    pair.network.kill("b");
    EXPECT_EQ(pair.b->write(bytes_of("x")).state, State::broken);
    EXPECT_EQ(pair.state_of(*pair.b), State::broken);
    pair.world.run_for(999us);
    State state{};
    std::string got = pair.read_all(*pair.a, state);
    EXPECT_EQ(got, "first");
    EXPECT_EQ(state, State::open);
    pair.world.run_for(1us);
    got += pair.read_all(*pair.a, state);
    ASSERT_NE(state, State::open);
    EXPECT_EQ(got, std::string("firstsecond").substr(0, got.size()));
    if (state == State::closed) {
      ++ended;
      EXPECT_EQ(got, "firstsecond") << "an end in good order loses nothing";
    } else {
      ++reset;
      EXPECT_THAT(pair.a->error().message(), HasSubstr("reset by the peer"));
    }
  }
  EXPECT_GT(ended, 5);
  EXPECT_GT(reset, 5);
}

TEST(SimNetwork, WritingToTheDeadBreaks) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Pair pair({.delay = 1ms}, seed);
    pair.network.kill("a");
    pair.b->write(bytes_of("anyone?"));
    pair.world.run_for(2ms);
    EXPECT_EQ(pair.b->write(bytes_of("x")).state, State::broken);
    EXPECT_EQ(pair.state_of(*pair.b), State::broken);
  }
}

TEST(SimNetwork, ADeadProcessRefusesUntilItIsBack) {
  Pair pair;
  pair.network.kill("a");
  EXPECT_FALSE(pair.network.alive("a"));
  EXPECT_THROW(pair.network.at("a").listen("a:4001"), SystemError);
  auto refused = pair.network.at("b").connect("a:4000");
  pair.world.run_for(2ms);
  EXPECT_EQ(refused->write(bytes_of("x")).state, State::broken);
  EXPECT_THAT(refused->error().message(), HasSubstr("a:4000: refused"));

  pair.network.restart("a");
  auto listener = pair.network.at("a").listen("a:4000");
  auto again = pair.network.at("b").connect("a:4000");
  pair.world.run_for(2ms);
  EXPECT_NE(listener->accept(), nullptr);
  EXPECT_EQ(pair.listener->accept(), nullptr);
  EXPECT_EQ(pair.state_of(*pair.a), State::broken) << "nothing old comes back";
}

TEST(SimNetwork, ClosingWithUnreadBytesResets) {
  Pair pair;
  pair.b->write(bytes_of("never read"));
  pair.world.run_for(1ms);
  pair.a.reset();
  pair.world.run_for(1ms);
  EXPECT_EQ(pair.state_of(*pair.b), State::broken);
}

TEST(SimNetwork, HostsOwnTheirNamesAndSockets) {
  Pair pair;
  EXPECT_THROW(pair.network.at("b").listen("a:5000"), SystemError);
  EXPECT_THROW(pair.network.at("b").connect("nowhere:5000"), SystemError);
  // Unix sockets are seen on their own host only, by all its processes.
  auto listener = pair.network.at("a").listen("unix:/run/x");
  auto neighbour = pair.network.at("a/1").connect("unix:/run/x");
  auto stranger = pair.network.at("b").connect("unix:/run/x");
  pair.world.run_for(2ms);
  EXPECT_EQ(neighbour->write(bytes_of("x")).bytes, 1U);
  EXPECT_EQ(stranger->write(bytes_of("x")).state, State::broken);
}

TEST(SimNetwork, ActivityStandsStillWhenNothingHappens) {
  Pair pair;
  const auto a = pair.network.at("a").activity();
  pair.b->write(bytes_of("x"));
  pair.world.run_for(999us);
  EXPECT_EQ(pair.network.at("a").activity(), a);
  pair.world.run_for(1us);
  EXPECT_NE(pair.network.at("a").activity(), a);
}

TEST(SimNetwork, AWaitWithoutEventsEnds) {
  Pair pair;
  auto poller = pair.network.at("a").poller();
  poller->watch(*pair.a, sys::Poller::Interest::read);
  EXPECT_FALSE(poller->wait(Deadline::never()));
  pair.world.schedule_after(1ms, [&] { poller->wake(); });
  EXPECT_TRUE(poller->wait(Deadline::never()));
}

/// Two processes that echo a counter through a bad network, with a kill by seed.
std::uint64_t run_echo(std::uint64_t seed) {
  Pair pair({.delay = 50us, .jitter = 1ms, .piece = 3, .buffer = 16}, seed);
  std::string to_send(200, 'x');
  std::size_t sent = 0;
  pair.world.schedule_after(pair.world.random().up_to(100ms), [&] { pair.network.kill("b"); });
  do {
    pair.world.note(pair.read_all(*pair.a).size());
    pair.world.note(pair.read_all(*pair.b).size());
    sent += pair.b->write(bytes_of(std::string_view(to_send).substr(sent))).bytes;
    pair.a->write(bytes_of("pong"));
  } while (pair.world.step());
  return pair.world.trace_hash();
}

TEST(SimNetwork, SameSeedSameTrace) {
  EXPECT_EQ(run_echo(11), run_echo(11));
  EXPECT_NE(run_echo(11), run_echo(12));
}

}  // namespace
}  // namespace lockstep::sim
