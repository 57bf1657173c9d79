// F9: callers that know what only ranks know, and are not who they say. The rank that is alive is
// never replaced by one of them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

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
  std::string answer() {
    wire::Abort abort;
    const Status readable = wire::decode(greeting_.payload(), 4, abort);
    return readable.ok() ? abort.cause.message() : readable.message();
  }

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

/// Rank 0 of two at work, with a door; the other end of its control connection is the test's.
class AtWork : public Impostors {
 protected:
  static constexpr std::uint64_t kIncarnation = 77;
  AtWork() {
    auto door = std::make_unique<Door>(network_, fmt::format("unix:{}/door", directory_.path()));
    address_ = door->address();
    const auto listener = network_.listen(fmt::format("unix:{}/control", directory_.path()));
    Presence::Setup setup;
    setup.roster.generation = 1;
    setup.roster.members = {hello_of(0), hello_of(1)};
    setup.roster.members[1].incarnation = kIncarnation;
    setup.network = std::make_unique<sys::PosixNetwork>();
    setup.doors.push_back(std::move(door));
    setup.control.resize(2);
    peer_ = network_.connect(listener->address());
    EXPECT_TRUE(until([&] {
      setup.control[1] = listener->accept();
      return setup.control[1] != nullptr;
    }));
    setup.wake = [] {};
    presence_ = std::make_shared<Presence>(std::move(setup));
    presence_->start();
  }
  ~AtWork() override { presence_->leave(); }

  static wire::Hello data_of_rank_1() {
    wire::Hello hello = hello_of(1);
    hello.purpose = wire::Purpose::data;
    hello.generation = 1;
    hello.incarnation = kIncarnation;
    hello.group = 5;
    return hello;
  }
  /// Whether this call becomes the connection of the group to that rank; refused if not.
  bool becomes_the_connection(const wire::Hello& hello) {
    Call call(network_.connect(address_), hello);
    std::unique_ptr<sys::Connection> taken;
    EXPECT_TRUE(until([&] {
      if (call.answered()) return true;
      taken = presence_->data_connection(hello.group, 1);
      return taken != nullptr;
    }));
    if (taken) return true;
    EXPECT_THAT(call.answer(), HasSubstr("takes nobody in"));
    return false;
  }

  std::string address_;
  std::unique_ptr<sys::Connection> peer_;
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
  hello.generation = 2;
  EXPECT_FALSE(becomes_the_connection(hello));
  hello = data_of_rank_1();
  hello.rank = 3;  // of two
  EXPECT_FALSE(becomes_the_connection(hello));
}

TEST_F(AtWork, F9ASecondProcessThatJoinsInItsPlaceIsRefused) {
  wire::Hello hello = data_of_rank_1();
  hello.purpose = wire::Purpose::join;
  hello.generation = 0;
  EXPECT_FALSE(becomes_the_connection(hello));
}

}  // namespace
}  // namespace lockstep::coll
