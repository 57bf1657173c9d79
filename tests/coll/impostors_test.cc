// F9: callers that know what only ranks know, and are not who they say. The rank that is alive is
// never replaced by one of them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coll/door.h"
#include "coll/presence.h"
#include "coll/protection.h"
#include "lockstep/log.h"
#include "sys/posix_net.h"
#include "tests/sys/temporary_directory.h"
#include "wire/abort.h"

namespace lockstep::coll {
namespace {

using std::chrono_literals::operator""s;
using testing::AllOf;
using testing::HasSubstr;
using transport::Plane;

constexpr auto kAfter = ProtectedConnection::After::encrypted;

wire::Hello hello_of(int rank) {
  wire::Hello hello;
  hello.rank = rank;
  hello.size = 4;
  hello.set_host_name("node");
  hello.set_address("nowhere:1");
  return hello;
}

/// A rank's call that greets with whatever it is told.
class Call {
 public:
  Call(std::unique_ptr<sys::Connection> connection, const wire::Hello& hello)
      : connection_(std::move(connection)), greeting_(*connection_) {
    greeting_.send(hello);
  }
  /// True once there is an answer.
  bool answered() { return greeting_.flush() && greeting_.next(); }
  Status refusal() {
    if (greeting_.type() == wire::FrameType::accepted) return {};
    wire::Abort abort;
    const Status readable = wire::decode(greeting_.payload(), 4, abort);
    return readable.ok() ? abort.cause : readable;
  }
  std::string answer() { return refusal().message(); }

 private:
  std::unique_ptr<sys::Connection> connection_;
  Greeting greeting_;
};

class Impostors : public testing::Test {
 protected:
  Impostors() {
    set_log_sink([](LogLevel, std::string_view) {});
  }
  ~Impostors() override { set_log_sink({}); }

  /// False if it does not within some seconds.
  static bool until(const std::function<bool()>& holds) {
    const Deadline patience = Deadline::after(10s);
    while (!patience.passed()) {
      if (holds()) return true;
    }
    return false;
  }

  sys::PosixNetwork network_;
  TemporaryDirectory directory_;
};

/// The key says who calls; what he says of himself does not count.
TEST_F(Impostors, F9ARankThatCallsItselfAnotherIsTurnedAway) {
  const auto key = transport::JobKey::random();
  const Protection own(key, 0, kAfter);
  const Protection other(key, 1, kAfter);
  Door door(network_, "127.0.0.1:0",
            [&](std::unique_ptr<sys::Connection> caller) { return own.answer(std::move(caller)); });
  const auto refusal_as = [&](int rank) -> std::string {
    Call call(other.call(network_.connect(door.address()), 0, Plane::control), hello_of(rank));
    std::optional<Visitor> visitor;
    EXPECT_TRUE(until([&] {
      visitor = door.next(MonotonicClock().now());
      return call.answered() || visitor.has_value();
    }));
    return visitor ? "" : call.answer();
  };
  EXPECT_EQ(refusal_as(1), "");
  EXPECT_THAT(refusal_as(3), HasSubstr("rank 1 called itself rank 3"));
  EXPECT_THAT(door.last_refusal(), HasSubstr("rank 1 called itself rank 3"));
}

/// Who has got hold of the key of one generation cannot use it in another.
TEST_F(Impostors, F9ACallerOfOneGenerationThatGreetsInAnotherIsTurnedAway) {
  constexpr std::uint64_t kEarlier = 3;
  constexpr std::uint64_t kCurrent = 4;
  const auto key = transport::JobKey::random();
  Protection own(key, 0, kAfter);
  own.enter(kCurrent);
  Protection other(key, 1, kAfter);
  other.enter(kEarlier);
  Door door(network_, "127.0.0.1:0",
            [&](std::unique_ptr<sys::Connection> caller) { return own.answer(std::move(caller)); });
  const auto refusal = [&](wire::Purpose purpose, std::uint64_t generation) -> std::string {
    wire::Hello hello = hello_of(1);
    hello.purpose = purpose;
    hello.generation = generation;
    Call call(other.call(network_.connect(door.address()), 0, Plane::data), hello);
    std::optional<Visitor> visitor;
    EXPECT_TRUE(until([&] {
      visitor = door.next(MonotonicClock().now());
      return call.answered() || visitor.has_value();
    }));
    return visitor ? "" : call.answer();
  };
  EXPECT_EQ(refusal(wire::Purpose::data, kEarlier), "") << "who asks is told";
  EXPECT_THAT(refusal(wire::Purpose::data, kCurrent),
              HasSubstr("called in generation 3 and greeted in generation 4"));
  EXPECT_THAT(refusal(wire::Purpose::join, kEarlier), HasSubstr("called in generation 3"));
}

/// All call before the listener looks for the first time, as the ranks of a machine do.
TEST_F(Impostors, F1CallersThatHaveProvenTheKeyAreNotDropped) {
  constexpr int kCallers = 48;  // of one address
  const auto key = transport::JobKey::random();
  const Protection own(key, 0, kAfter);
  Door door(network_, "127.0.0.1:0",
            [&](std::unique_ptr<sys::Connection> caller) { return own.answer(std::move(caller)); });
  std::vector<std::unique_ptr<Protection>> others;
  std::vector<std::unique_ptr<sys::Connection>> calls;
  std::vector<std::unique_ptr<Greeting>> greetings;
  for (int rank = 1; rank <= kCallers; ++rank) {
    others.push_back(std::make_unique<Protection>(key, rank, kAfter));
    calls.push_back(others.back()->call(network_.connect(door.address()), 0, Plane::control));
    wire::Hello hello = hello_of(rank);
    hello.size = kCallers + 1;
    greetings.push_back(std::make_unique<Greeting>(*calls.back()));
    greetings.back()->send(hello);
    ASSERT_TRUE(until([&] {
      (void)greetings.back()->flush();
      return calls.back()->underlying().is_open();
    }));
    (void)greetings.back()->flush();  // the first message of the handshake
  }
  std::vector<Visitor> visitors;
  std::vector<bool> acknowledged(kCallers, false);
  EXPECT_TRUE(until([&] {
    while (auto visitor = door.next(MonotonicClock().now())) {
      EXPECT_TRUE(visitor->acknowledge());
      visitors.push_back(std::move(*visitor));
    }
    for (std::size_t i = 0; i < greetings.size(); ++i) {
      (void)greetings[i]->flush();
      if (greetings[i]->next()) {
        EXPECT_EQ(greetings[i]->type(), wire::FrameType::accepted);
        acknowledged[i] = true;
      }
      if (!calls[i]->error().ok()) ADD_FAILURE() << i << ": " << calls[i]->error().message();
    }
    return HasFailure() ||
           std::all_of(acknowledged.begin(), acknowledged.end(), [](bool yes) { return yes; });
  }));
  EXPECT_EQ(visitors.size(), std::size_t{kCallers});
}

/// Rank 0 of two at work, with a door; the other end of its control connection is the test's.
class AtWork : public Impostors {
 protected:
  static constexpr std::uint64_t kIncarnation = 77;
  static constexpr std::uint64_t kGeneration = 7;
  AtWork() {
    auto door = std::make_unique<Door>(network_, fmt::format("unix:{}/door", directory_.path()));
    address_ = door->address();
    const auto listener = network_.listen(fmt::format("unix:{}/control", directory_.path()));
    Presence::Setup setup;
    setup.roster.generation = kGeneration;
    setup.roster.members = {hello_of(0), hello_of(1)};
    setup.roster.members[1].incarnation = kIncarnation;
    setup.roster.members[1].pid = 4711;
    setup.roster.members[1].generation = kGeneration;
    setup.network = std::make_unique<sys::PosixNetwork>();
    setup.doors.push_back(std::move(door));
    setup.control.resize(2);
    peer_ = network_.connect(listener->address());
    EXPECT_TRUE(until([&] {
      setup.control[1] = listener->accept();
      return setup.control[1] != nullptr;
    }));
    control_.emplace(*peer_);
    setup.wake = [] {};
    presence_ = std::make_shared<Presence>(std::move(setup));
    presence_->start();
  }
  ~AtWork() override { presence_->leave(); }

  static wire::Hello data_of_rank_1() {
    wire::Hello hello = hello_of(1);
    hello.purpose = wire::Purpose::data;
    hello.generation = kGeneration;
    hello.incarnation = kIncarnation;
    hello.group = 5;
    return hello;
  }
  /// Whether this call becomes the connection of the group to that rank; refused if not.
  bool becomes_the_connection(const wire::Hello& hello) {
    Call call(network_.connect(address_), hello);
    std::unique_ptr<sys::Connection> taken;
    EXPECT_TRUE(until([&] {
      if (call.answered() && !call.refusal().ok()) return true;
      taken = presence_->data_connection(hello.group, 1);
      return taken != nullptr;
    }));
    if (taken) return true;
    refusal_ = call.refusal();
    EXPECT_THAT(refusal_.message(), HasSubstr("takes nobody in"));
    return false;
  }

  /// The next notice to the process that has the rank.
  std::string told_to_rank_1() {
    EXPECT_TRUE(
        until([&] { return control_->next() && control_->type() == wire::FrameType::notice; }));
    const auto text = control_->payload();
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }

  std::string address_;
  Status refusal_;
  std::unique_ptr<sys::Connection> peer_;
  std::optional<Greeting> control_;  // with peer_
  std::shared_ptr<Presence> presence_;
};

TEST_F(AtWork, TheRankItselfIsTaken) { EXPECT_TRUE(becomes_the_connection(data_of_rank_1())); }

/// A process that was started again in the place of the one that is in this generation.
TEST_F(AtWork, F9AnotherIncarnationIsRefused) {
  wire::Hello hello = data_of_rank_1();
  hello.incarnation += 1;
  EXPECT_FALSE(becomes_the_connection(hello));
  EXPECT_FALSE(presence_->failure().raised()) << "the rank that is alive is not hurt";
}

TEST_F(AtWork, F8AnotherGenerationOrRankIsRefused) {
  wire::Hello hello = data_of_rank_1();
  hello.generation = kGeneration + 1;
  EXPECT_FALSE(becomes_the_connection(hello));
  hello = data_of_rank_1();
  hello.rank = 3;  // of two
  EXPECT_FALSE(becomes_the_connection(hello));
}

/// It calls again until this generation is over: its supervisor may have started it in the place of
/// one that has ended. Both are named.
TEST_F(AtWork, F9ASecondProcessThatJoinsInItsPlaceWaitsForTheNextGeneration) {
  wire::Hello hello = data_of_rank_1();
  hello.purpose = wire::Purpose::join;
  hello.generation = 0;
  hello.incarnation += 1;
  hello.pid = 4712;
  hello.started = 86400;
  EXPECT_FALSE(becomes_the_connection(hello));
  EXPECT_EQ(refusal_.code(), Code::unavailable);
  EXPECT_THAT(refusal_.message(), HasSubstr("rank 1 is pid 4711 on node, started 1970-01-01 "
                                            "00:00:00 UTC, and pid 4712 on node, started "
                                            "1970-01-02 00:00:00 UTC came later"));
  EXPECT_EQ(told_to_rank_1(), refusal_.message());
}

/// A process that cannot listen where another one does asks who that is.
TEST_F(AtWork, F9ASecondProcessThatCannotListenLearnsWhoHasItsRank) {
  wire::Hello hello = data_of_rank_1();
  hello.purpose = wire::Purpose::claim;
  hello.generation = 0;
  hello.incarnation += 1;
  hello.pid = 4712;
  EXPECT_FALSE(becomes_the_connection(hello));
  EXPECT_EQ(refusal_.code(), Code::already_exists);
  EXPECT_THAT(refusal_.message(), AllOf(HasSubstr("has joined already as pid 4711 on node"),
                                        HasSubstr("(last in generation 7)"),
                                        HasSubstr("a second process claims it: pid 4712 on node")));
  EXPECT_EQ(told_to_rank_1(), refusal_.message());
}

/// Of two that call in turns each is told of once, to whoever has their rank.
TEST_F(AtWork, ClaimantsThatCallInTurnsAreToldOfOnceEach) {
  wire::Hello hello = data_of_rank_1();
  hello.purpose = wire::Purpose::join;
  hello.generation = 0;
  for (int call = 0; call < 4; ++call) {
    hello.incarnation = kIncarnation + 1 + static_cast<std::uint64_t>(call % 2);
    EXPECT_FALSE(becomes_the_connection(hello));
  }
  hello.incarnation = kIncarnation + 9;
  hello.pid = 4799;
  EXPECT_FALSE(becomes_the_connection(hello));
  int told = 0;
  while (told_to_rank_1().find("pid 4799") == std::string::npos && !HasFailure()) ++told;
  EXPECT_EQ(told, 2);
}

/// A process that was stopped while the others began anew without it.
TEST_F(AtWork, F8AProcessOfAnEarlierGenerationIsToldBothGenerations) {
  using wire::Purpose;
  for (const Purpose purpose : {Purpose::join, Purpose::data, Purpose::claim}) {
    wire::Hello hello = data_of_rank_1();
    hello.purpose = purpose;
    hello.generation = kGeneration - 2;
    hello.incarnation += 1;
    EXPECT_FALSE(becomes_the_connection(hello));
    EXPECT_EQ(refusal_.code(), Code::aborted);
    EXPECT_THAT(refusal_.message(), HasSubstr("is of generation 5, which is over"));
    EXPECT_THAT(refusal_.message(), HasSubstr("in generation 7 rank 1 is pid 4711 on node"));
  }
}

}  // namespace
}  // namespace lockstep::coll
