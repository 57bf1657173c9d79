// Data connections at their first use: whose fault it is if there is none.
#include "coll/lazy_connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <thread>

#include "lockstep/error.h"
#include "sys/os_error.h"
#include "sys/posix_net.h"

namespace lockstep::coll {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// Rank 1 of two, with a control connection to that listener.
Presence::Setup rank_1_of_2(const sys::Listener& listener) {
  Presence::Setup setup;
  setup.network = std::make_unique<sys::PosixNetwork>();
  setup.roster.rank = 1;
  setup.roster.generation = 1;
  for (const int rank : {0, 1}) {
    wire::Hello hello;
    hello.rank = rank;
    hello.size = 2;
    hello.set_address("node:1");
    setup.roster.members.push_back(hello);
  }
  setup.control.resize(2);
  setup.control[0] = setup.network->connect(listener.address());
  setup.wake = [] {};
  return setup;
}

/// What rank 1 reports if that is what calling rank 0 comes to.
Status reported(std::function<std::unique_ptr<sys::Connection>(int)> connect) {
  sys::PosixNetwork network;
  const auto listener = network.listen("127.0.0.1:0");
  Presence::Setup setup = rank_1_of_2(*listener);
  setup.connect = std::move(connect);
  const auto presence = std::make_shared<Presence>(std::move(setup));
  LazyConnection connection(presence, 0, 0);
  std::array<std::byte, 1> byte{};
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  while (!presence->failure().proposed() && !deadline.passed()) {
    (void)connection.write(byte);
    std::this_thread::yield();
  }
  return presence->failure().proposal();
}

TEST(LazyConnection, NoDescriptorHereIsNotThePeersFault) {
  const Status why = reported([](int) -> std::unique_ptr<sys::Connection> {
    raise(sys::os_error("cannot connect to node:1", EMFILE));
  });
  EXPECT_EQ(why.kind(), ErrorKind::system_error);
  EXPECT_EQ(why.code(), Code::resource_exhausted);
  EXPECT_THAT(why.culprits(), ElementsAre(1));
  EXPECT_THAT(why.message(), AllOf(HasSubstr("rank 1: cannot connect to node:1"),
                                   HasSubstr("ulimit -n"), Not(HasSubstr("firewall"))));
}

TEST(LazyConnection, NorIsMemoryThatIsShort) {
  const Status why =
      reported([](int) -> std::unique_ptr<sys::Connection> { throw std::bad_alloc(); });
  EXPECT_EQ(why.kind(), ErrorKind::system_error);
  EXPECT_THAT(why.culprits(), ElementsAre(1));
  EXPECT_THAT(why.message(), HasSubstr("rank 1: out of memory"));
}

/// The peer may be back in a moment, and has a long time for it.
TEST(LazyConnection, ANameThatIsNotFoundIsAskedForAgain) {
  int calls = 0;
  const Status why = reported([&](int) -> std::unique_ptr<sys::Connection> {
    if (++calls == 1) throw SystemError("cannot look up the host of node:1", Code::not_found);
    throw std::bad_alloc();
  });
  EXPECT_EQ(calls, 2);
  EXPECT_THAT(why.message(), HasSubstr("out of memory"));
}

/// Its listener had to make room before it had read the Hello: nothing was lost.
TEST(LazyConnection, APeerThatHangsUpBeforeItAcknowledgesIsCalledAgain) {
  sys::PosixNetwork network;
  const auto listener = network.listen("127.0.0.1:0");
  Presence::Setup setup = rank_1_of_2(*network.listen("127.0.0.1:0"));
  setup.connect = [&](int) { return network.connect(listener->address()); };
  const auto presence = std::make_shared<Presence>(std::move(setup));
  LazyConnection connection(presence, 0, 0);
  std::array<std::byte, 1> byte{};
  std::optional<Visitor> visitor;
  std::unique_ptr<Greeting> greeting;
  int calls = 0;
  sys::Transfer moved;
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  while (moved.bytes == 0 && !presence->failure().proposed() && !deadline.passed()) {
    moved = connection.write(byte);
    if (auto called = listener->accept()) {
      if (++calls == 1) continue;
      visitor = Visitor{.connection = std::move(called), .hello = {}};
      greeting = std::make_unique<Greeting>(*visitor->connection, Greeting::Takes::hello);
    }
    if (greeting && greeting->next()) {
      EXPECT_EQ(moved.bytes, 0U) << "nothing moves before it is acknowledged";
      EXPECT_TRUE(visitor->acknowledge());
    }
  }
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(moved.bytes, 1U) << presence->failure().proposal().message();
}

/// A process that was stopped while the others began a new generation.
TEST(LazyConnection, ARefusalOfThePeerIsReportedAsItIs) {
  sys::PosixNetwork network;
  const auto listener = network.listen("127.0.0.1:0");
  Presence::Setup setup = rank_1_of_2(*network.listen("127.0.0.1:0"));
  setup.connect = [&](int) { return network.connect(listener->address()); };
  const auto presence = std::make_shared<Presence>(std::move(setup));
  LazyConnection connection(presence, 0, 0);
  std::array<std::byte, 1> byte{};
  std::unique_ptr<sys::Connection> called;
  std::unique_ptr<Greeting> greeting;
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  while (!presence->failure().proposed() && !deadline.passed()) {
    (void)connection.write(byte);
    if (!called && (called = listener->accept())) greeting = std::make_unique<Greeting>(*called);
    if (greeting && greeting->next()) {
      greeting->send(Status(ErrorKind::config_error, Code::aborted,
                            "generation 1 is over\x1b[2J\n[lockstep 12:00:00.000 error] forged"));
      greeting->flush();
    }
  }
  EXPECT_EQ(presence->failure().proposal().code(), Code::aborted);
  EXPECT_THAT(presence->failure().proposal().message(),
              HasSubstr("generation 1 is over\\x1b[2J\n  [lockstep"));
}

}  // namespace
}  // namespace lockstep::coll
