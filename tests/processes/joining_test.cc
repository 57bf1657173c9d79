// Joining that goes wrong: ranks that die or never come, and ranks that were given different
// things. Both sides say what is the matter.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <thread>

#include "coll/greeting.h"
#include "sys/descriptor.h"
#include "sys/posix_net.h"
#include "tests/processes/fault_checks.h"
#include "tests/processes/scenarios.h"
#include "wire/abort.h"
#include "wire/hello.h"

namespace lockstep::processes {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kOtherKey =
    "LOCKSTEP_KEY=ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

const std::vector<std::string> kShort = {"TEST_JOIN_MS=700"};

std::vector<Outcome> join(ClusterOptions options) {
  if (options.scenario.empty()) options.scenario = "work 0.1 10";
  if (options.environment.empty()) options.environment = kShort;
  ProcessCluster cluster(options);
  return cluster.finish(10s);
}

Verdict verdict_of(const Outcome& outcome) {
  const auto verdict = verdict_in(outcome.text);
  EXPECT_TRUE(verdict.has_value()) << outcome.how() << "\n" << outcome.text;
  EXPECT_TRUE(outcome.exited_with(3)) << outcome.how();
  return verdict.value_or(Verdict());
}

class Joining : public testing::TestWithParam<Wire> {};

/// The ranks that wait are told by rank 0 who did not come.
TEST_P(Joining, AMissingRankIsNamedAtTheDeadline) {
  ProcessCluster cluster({.ranks = 3,
                          .scenario = "work 1 10",
                          .wire = GetParam(),
                          .environment = kShort,
                          .absent = {1}});
  const auto outcomes = cluster.finish(10s);
  for (const int rank : {0, 2}) {
    const Verdict verdict = verdict_of(outcomes[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(verdict.kind, "Timeout");
    EXPECT_EQ(verdict.culprits, std::vector<int>{1})
        << outcomes[static_cast<std::size_t>(rank)].text;
    EXPECT_THAT(verdict.message, AllOf(HasSubstr("rank 1 "), HasSubstr("2 of 3 joined")));
  }
}

TEST_P(Joining, RankZeroMissing) {
  ProcessCluster cluster({.ranks = 2,
                          .scenario = "work 1 10",
                          .wire = GetParam(),
                          .environment = kShort,
                          .absent = {0}});
  const auto outcomes = cluster.finish(10s);
  const Verdict verdict = verdict_of(outcomes[1]);
  EXPECT_EQ(verdict.kind, "Timeout");
  EXPECT_EQ(verdict.culprits, std::vector<int>{0});
  EXPECT_THAT(verdict.message, AllOf(HasSubstr("rank 0"), HasSubstr("does not answer")));
}

/// A4: it had called rank 0 and dies while others are still missing.
TEST_P(Joining, A4ARankThatDiesMeanwhileIsNamed) {
  ProcessCluster cluster({.ranks = 4,
                          .scenario = "work 1 10",
                          .wire = GetParam(),
                          .environment = {"TEST_JOIN_MS=15000"},
                          .absent = {3}});
  std::this_thread::sleep_for(400ms);  // nothing tells from outside that rank 2 has called
  const std::int64_t killed = now_us();
  ASSERT_TRUE(cluster.process(2).signal(sys::Signal::kill).ok());
  const auto outcomes = cluster.finish(8s);
  for (const int rank : {0, 1}) {
    const Verdict verdict = verdict_of(outcomes[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(verdict.kind, "PeerLost");
    EXPECT_EQ(verdict.culprits, std::vector<int>{2});
    EXPECT_THAT(verdict.message, HasSubstr("died while joining (3 of 4 present)"));
    EXPECT_LT(verdict.at_us - killed, std::chrono::microseconds(1s + kSlack).count());
  }
}

TEST_P(Joining, A4A5RankZeroDiesMeanwhile) {
  ProcessCluster cluster({.ranks = 4,
                          .scenario = "work 1 10",
                          .wire = GetParam(),
                          .environment = {"TEST_JOIN_MS=15000"},
                          .absent = {3}});
  std::this_thread::sleep_for(400ms);
  const std::int64_t killed = now_us();
  ASSERT_TRUE(cluster.process(0).signal(sys::Signal::kill).ok());
  const auto outcomes = cluster.finish(8s);
  for (const int rank : {1, 2}) {
    const Verdict verdict = verdict_of(outcomes[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(verdict.kind, "PeerLost");
    EXPECT_EQ(verdict.culprits, std::vector<int>{0});
    EXPECT_THAT(verdict.message, Not(HasSubstr("present")));  // only rank 0 knew
    EXPECT_LT(verdict.at_us - killed, std::chrono::microseconds(1s + kSlack).count());
  }
}

/// The same with one whose direction of the connection is closed.
TEST_P(Joining, A4ARankThatIsHalfClosedMeanwhileIsNamed) {
  ProcessCluster cluster({.ranks = 4,
                          .scenario = "work 1 10",
                          .wire = GetParam(),
                          .environment = {"TEST_JOIN_MS=15000"},
                          .environment_of = {{2, {"TEST_MUTE_MS=400"}}},
                          .absent = {3}});
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(cluster.wait_for(rank, "closed after", 5s)) << cluster.text(rank);
  }
  (void)cluster.process(2).signal(sys::Signal::kill);
  const auto outcomes = cluster.finish(5s);
  for (const int rank : {0, 1}) {
    const Verdict verdict = verdict_of(outcomes[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(verdict.kind, "PeerLost");
    EXPECT_EQ(verdict.culprits, std::vector<int>{2});
    EXPECT_THAT(verdict.message, HasSubstr("died while joining"));
  }
}

/// A10: one that is stopped holds up the others until the deadline, and they name it.
TEST_P(Joining, A10ARankThatIsStoppedMeanwhileIsNamed) {
  ProcessCluster cluster({.ranks = 4,
                          .scenario = "work 1 10",
                          .wire = GetParam(),
                          .environment = {"TEST_JOIN_MS=2000"},
                          .absent = {3}});
  std::this_thread::sleep_for(400ms);
  ASSERT_TRUE(cluster.process(2).signal(sys::Signal::stop).ok());
  cluster.start(3);
  for (const int rank : {0, 1, 3}) {
    EXPECT_TRUE(cluster.wait_for(rank, "closed after", 8s)) << cluster.text(rank);
  }
  (void)cluster.process(2).signal(sys::Signal::kill);
  const auto outcomes = cluster.finish(5s);
  for (const int rank : {0, 1, 3}) {
    const Verdict verdict = verdict_of(outcomes[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(verdict.kind, "Timeout");
    EXPECT_EQ(verdict.culprits, std::vector<int>{2}) << verdict.message;
  }
}

TEST_P(Joining, ALateRankIsWaitedFor) {
  ProcessCluster cluster(
      {.ranks = 3, .scenario = "work 0.1 10", .wire = GetParam(), .absent = {0}});
  std::this_thread::sleep_for(300ms);
  cluster.start(0);
  for (const Outcome& outcome : cluster.finish(10s)) EXPECT_TRUE(outcome.ok()) << outcome.text;
}

TEST_P(Joining, ADifferentNumberOfRanks) {
  ClusterOptions options{.ranks = 2, .wire = GetParam()};
  ProcessCluster three({.ranks = 3, .scenario = "-", .wire = GetParam(), .absent = {0, 1, 2}});
  options.addresses = {three.addresses()[0], three.addresses()[1]};
  options.environment_of[1] = {fmt::format("LOCKSTEP_ADDRESSES={},{},{}", three.addresses()[0],
                                           three.addresses()[1], three.addresses()[2])};
  const auto outcomes = join(options);
  const Verdict refused = verdict_of(outcomes[1]);
  EXPECT_EQ(refused.kind, "ConfigError");
  EXPECT_THAT(refused.message, HasSubstr("it was given 3 ranks, rank 0 2"));
  EXPECT_THAT(verdict_of(outcomes[0]).message, HasSubstr("it was given 3 ranks, rank 0 2"));
  EXPECT_EQ(verdict_of(outcomes[0]).kind, "Timeout");
}

TEST_P(Joining, C7OtherAddresses) {
  ClusterOptions options{.ranks = 2, .wire = GetParam()};
  ProcessCluster three({.ranks = 3, .scenario = "-", .wire = GetParam(), .absent = {0, 1, 2}});
  options.addresses = {three.addresses()[0], three.addresses()[1]};
  options.environment_of[1] = {
      fmt::format("LOCKSTEP_ADDRESSES={},{}", three.addresses()[0], three.addresses()[2])};
  const auto outcomes = join(options);
  const Verdict refused = verdict_of(outcomes[1]);
  EXPECT_EQ(refused.kind, "ConfigError");
  for (const Verdict& verdict : {refused, verdict_of(outcomes[0])}) {
    EXPECT_THAT(verdict.message,
                AllOf(HasSubstr("other addresses"), HasSubstr(three.addresses()[1]),
                      HasSubstr(three.addresses()[2])));
  }
}

/// The own entry is the same; the first that is not is named.
TEST_P(Joining, C7AnotherAddressOfSomebodyElse) {
  ProcessCluster four({.ranks = 4, .scenario = "-", .wire = GetParam(), .absent = {0, 1, 2, 3}});
  const std::vector<std::string>& at = four.addresses();
  ClusterOptions options{.ranks = 3, .wire = GetParam(), .absent = {2}};
  options.addresses = {at[0], at[1], at[2]};
  options.environment_of[1] = {fmt::format("LOCKSTEP_ADDRESSES={},{},{}", at[0], at[1], at[3])};
  const auto outcomes = join(options);
  const Verdict refused = verdict_of(outcomes[1]);
  EXPECT_EQ(refused.kind, "ConfigError");
  EXPECT_THAT(refused.message,
              HasSubstr(fmt::format("rank 0 was given \"address of rank 2: {}\", this rank "
                                    "\"address of rank 2: {}\"",
                                    at[2], at[3])));
  EXPECT_THAT(verdict_of(outcomes[0]).message, HasSubstr("other addresses"));
}

/// Somebody else is where it was told that rank 0 is.
TEST_P(Joining, C7AnotherOrder) {
  ClusterOptions options{.ranks = 3, .wire = GetParam()};
  ProcessCluster names({.ranks = 3, .scenario = "-", .wire = GetParam(), .absent = {0, 1, 2}});
  const std::vector<std::string>& at = names.addresses();
  options.addresses = at;
  options.environment_of[2] = {fmt::format("LOCKSTEP_ADDRESSES={},{},{}", at[1], at[0], at[2])};
  const auto outcomes = join(options);
  const Verdict refused = verdict_of(outcomes[2]);
  EXPECT_EQ(refused.kind, "ConfigError");
  EXPECT_THAT(refused.message, AllOf(HasSubstr("asked rank 1 to take it in"),
                                     HasSubstr("address of rank 0: " + at[0])));
  EXPECT_THAT(outcomes[1].text, HasSubstr("asked rank 1 to take it in"));
}

TEST_P(Joining, B11OtherOptions) {
  ClusterOptions options{.ranks = 2, .wire = GetParam()};
  options.environment_of[1] = {"TEST_ALGORITHMS=all_reduce=ring"};
  const auto outcomes = join(options);
  EXPECT_EQ(verdict_of(outcomes[1]).kind, "ConfigError");
  EXPECT_THAT(verdict_of(outcomes[1]).message,
              AllOf(HasSubstr("other options"),
                    HasSubstr("\"algorithms: \", this rank \"algorithms: all_reduce=ring\"")));
  EXPECT_THAT(verdict_of(outcomes[0]).message, HasSubstr("other options"));
}

/// Two processes for one place: the second cannot have the address.
TEST_P(Joining, ARankTwice) {
  ClusterOptions options{.ranks = 3, .wire = GetParam()};
  // The first one must have called rank 0, also on a busy machine.
  options.environment = {"TEST_JOIN_MS=2500"};
  options.environment_of[2] = {"LOCKSTEP_RANK=1", "LOCKSTEP_HOST="};
  if (GetParam() != Wire::local) options.environment_of[2][1] = "LOCKSTEP_HOST=host1";
  const auto outcomes = join(options);
  const Verdict zero = verdict_of(outcomes[0]);
  EXPECT_EQ(zero.kind, "Timeout");
  EXPECT_THAT(zero.message, HasSubstr("rank 2"));
  const Verdict one = verdict_of(outcomes[1]);
  const Verdict other = verdict_of(outcomes[2]);
  const Verdict& second = one.kind == "SystemError" ? one : other;
  EXPECT_EQ(second.kind, "SystemError") << outcomes[1].text << outcomes[2].text;
  EXPECT_THAT(second.message, AllOf(HasSubstr("cannot listen at"), HasSubstr("in use"),
                                    HasSubstr("has joined already as pid"),
                                    HasSubstr("a second process claims it: pid"),
                                    HasSubstr("started 20"), HasSubstr("last in generation 0")));
  const Outcome& first = outcomes[&second == &one ? 2 : 1];
  EXPECT_THAT(first.text, HasSubstr("a second process claims it: pid")) << "it is told, too";
}

/// F1: more ranks of one address than may call without having proven the key, all at once: rank 0
/// comes last. Their data connections meet the same listeners.
TEST(Crowds, ManyRanksOfOneAddressJoinWithAKey) {
  constexpr int kRanks = 48;
  ProcessCluster cluster({.ranks = kRanks,
                          .scenario = "work 0.1 10",
                          .wire = Wire::tls,
                          .environment = {"TEST_JOIN_MS=20000"},
                          .absent = {0}});
  cluster.start(0);
  for (const Outcome& outcome : cluster.finish(40s)) {
    EXPECT_TRUE(outcome.ok()) << outcome.how() << "\n" << outcome.text;
  }
}

/// The same where an algorithm was chosen that connects every two ranks: each rank's listener is
/// called by all that come after it, and all call at once.
TEST(Crowds, EveryTwoRanksConnectWithAKey) {
  constexpr int kRanks = 40;
  ProcessCluster cluster(
      {.ranks = kRanks,
       .scenario = "work 0.1 10",
       .wire = Wire::tls,
       .environment = {"TEST_JOIN_MS=20000", "TEST_ALGORITHMS=all_reduce=direct"}});
  for (const Outcome& outcome : cluster.finish(40s)) {
    EXPECT_TRUE(outcome.ok()) << outcome.how() << "\n" << outcome.text;
  }
}

INSTANTIATE_TEST_SUITE_P(Over, Joining, testing::Values(Wire::local, Wire::tcp, Wire::tls),
                         [](const auto& wire) { return to_string(wire.param); });

/// Rank 1 is called by somebody who knows the generation and calls himself rank 2, before rank 2 is
/// there: the one that rank 0 took in gets the place.
TEST(JoiningOnOneHost, F9AnImpostorDoesNotGetTheRanksPlaceInTheRing) {
  ProcessCluster cluster({.ranks = 3, .scenario = "work 0.2 10", .absent = {2}});
  wire::Hello hello;
  hello.purpose = wire::Purpose::control;
  hello.generation = 1;
  hello.rank = 2;
  hello.size = 3;
  hello.incarnation = 4711;
  sys::PosixNetwork network;
  std::unique_ptr<sys::Connection> connection;
  std::optional<coll::Greeting> greeting;
  const Deadline patience = Deadline::after(10s);
  for (bool said = false; !said && !patience.passed();) {
    connection = network.connect(cluster.addresses()[1]);
    greeting.emplace(*connection);
    greeting->send(hello);
    while (!said && connection->error().ok() && !patience.passed()) said = greeting->flush();
  }
  ASSERT_FALSE(patience.passed());
  cluster.start(2);
  for (const Outcome& outcome : cluster.finish(20s)) EXPECT_TRUE(outcome.ok()) << outcome.text;
}

/// Without addresses of their own nothing but rank 0 keeps the two apart.
TEST(JoiningOnOneHost, ARankTwiceWithoutAddresses) {
  ProcessCluster names({.ranks = 1, .scenario = "-", .absent = {0}});
  ClusterOptions options{.ranks = 3, .addresses = {names.addresses()[0], "", ""}};
  options.environment_of[2] = {"LOCKSTEP_RANK=1"};
  const auto outcomes = join(options);
  const bool first = verdict_of(outcomes[1]).kind == "ConfigError";
  const Verdict refused = verdict_of(outcomes[first ? 1 : 2]);
  EXPECT_EQ(refused.kind, "ConfigError") << outcomes[1].text << outcomes[2].text;
  EXPECT_THAT(refused.message,
              AllOf(HasSubstr("has joined already as pid"), HasSubstr("started 20"),
                    HasSubstr("a second process claims it: pid"), HasSubstr("LOCKSTEP_PORT_BASE")));
  EXPECT_THAT(outcomes[first ? 2 : 1].text, HasSubstr("a second process claims it: pid"))
      << "the first one is told, too";
  EXPECT_THAT(verdict_of(outcomes[0]).message, AllOf(HasSubstr("rank 2"), HasSubstr("refused")));
}

TEST(Keys, C19AWrongKey) {
  ClusterOptions options{.ranks = 2, .wire = Wire::tls};
  options.environment_of[1] = {kOtherKey};
  const auto outcomes = join(options);
  const Verdict refused = verdict_of(outcomes[1]);
  EXPECT_EQ(refused.kind, "ConfigError");
  EXPECT_EQ(refused.code, "UNAUTHENTICATED");
  EXPECT_THAT(refused.message, HasSubstr("wrong key"));
  const Verdict zero = verdict_of(outcomes[0]);
  EXPECT_EQ(zero.kind, "Timeout");
  EXPECT_THAT(zero.message, AllOf(HasSubstr("rank 1"), HasSubstr("wrong key")));
  for (const Outcome& outcome : outcomes) {
    EXPECT_THAT(outcome.text, Not(HasSubstr("0102030405")));
  }
}

TEST(Keys, C19OnlyRankZeroHasOne) {
  ClusterOptions options{.ranks = 2, .wire = Wire::tls};
  options.environment_of[1] = {"LOCKSTEP_KEY=", "LOCKSTEP_INSECURE=1"};
  const auto outcomes = join(options);
  EXPECT_THAT(verdict_of(outcomes[1]).message, HasSubstr("key"));
  EXPECT_THAT(verdict_of(outcomes[0]).message, AllOf(HasSubstr("rank 1"), HasSubstr("key")));
}

TEST(Keys, C19RankZeroHasNone) {
  ClusterOptions options{.ranks = 2, .wire = Wire::tls};
  options.environment_of[0] = {"LOCKSTEP_KEY=", "LOCKSTEP_INSECURE=1"};
  const auto outcomes = join(options);
  EXPECT_THAT(verdict_of(outcomes[1]).message, HasSubstr("without a key"));
  EXPECT_THAT(verdict_of(outcomes[0]).message, AllOf(HasSubstr("rank 1"), HasSubstr("key")));
}

TEST(Keys, NobodyHasOneAndNobodySaysThatItIsFine) {
  for (const Outcome& outcome :
       join({.ranks = 2, .wire = Wire::tls, .environment = {"LOCKSTEP_KEY="}})) {
    EXPECT_EQ(verdict_of(outcome).kind, "ConfigError");
    EXPECT_THAT(verdict_of(outcome).message, HasSubstr("need a key"));
  }
}

/// Another program of ours, or one that speaks another protocol, holds the place of rank 0.
TEST(Ports, AnotherProgramAnswersForRankZero) {
  sys::PosixNetwork network;
  const auto listener = network.listen("127.0.0.1:0");
  ProcessCluster names({.ranks = 2, .scenario = "-", .wire = Wire::tcp, .absent = {0, 1}});
  ProcessCluster cluster({.ranks = 2,
                          .scenario = "work 0.1 10",
                          .wire = Wire::tcp,
                          .environment = kShort,
                          .addresses = {listener->address(), names.addresses()[1]},
                          .absent = {0}});
  std::unique_ptr<sys::Connection> caller;
  const Deadline deadline = Deadline::after(5s);
  while (!caller && !deadline.passed()) caller = listener->accept();
  ASSERT_NE(caller, nullptr);
  const std::string answer = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
  (void)caller->write(std::as_bytes(std::span(answer)));
  const Verdict verdict = verdict_of(cluster.finish(10s)[1]);
  EXPECT_THAT(verdict.message, AllOf(HasSubstr("rank 0"), HasSubstr("another program")));
}

TEST(Ports, AnotherProtocolIsRefusedWithBothNumbers) {
  ProcessCluster cluster({.ranks = 2,
                          .scenario = "work 0.1 10",
                          .wire = Wire::tcp,
                          .environment = kShort,
                          .absent = {1}});
  sys::PosixNetwork network;
  wire::Hello hello;
  hello.protocol = wire::kProtocol + 1;
  std::unique_ptr<sys::Connection> connection;
  std::unique_ptr<coll::Greeting> greeting;
  const Deadline deadline = Deadline::after(5s);
  // Rank 0 may not listen yet.
  while (!greeting && !deadline.passed()) {
    connection = network.connect(cluster.addresses()[0]);
    std::this_thread::sleep_for(10ms);
    (void)connection->write({});
    if (connection->is_open() && connection->error().ok()) {
      greeting = std::make_unique<coll::Greeting>(*connection);
    }
  }
  ASSERT_NE(greeting, nullptr);
  greeting->send(hello);
  while (!greeting->next() && !greeting->over() && !deadline.passed()) (void)greeting->flush();
  ASSERT_FALSE(greeting->over()) << greeting->how();
  wire::Abort answer;
  ASSERT_TRUE(wire::decode(greeting->payload(), 2, answer).ok());
  EXPECT_EQ(answer.cause.kind(), ErrorKind::config_error);
  const std::string both = fmt::format("it speaks protocol {}, this program protocol {}",
                                       hello.protocol, wire::kProtocol);
  EXPECT_THAT(answer.cause.message(), AllOf(HasSubstr(both), HasSubstr("rank_program")));
  EXPECT_THAT(verdict_of(cluster.finish(10s)[0]).message,
              AllOf(HasSubstr(both), HasSubstr("rank_program")));
}

/// A frame of another version of lockstep; nothing behind its fifth byte is known.
std::vector<std::byte> foreign_frame(int version) {
  std::vector<std::byte> bytes(wire::kHeaderBytes + 100, std::byte{7});
  std::array<std::byte, wire::kHeaderBytes> own;
  wire::encode({.type = wire::FrameType::ready}, own);
  std::copy_n(own.begin(), 4, bytes.begin());
  bytes[4] = static_cast<std::byte>(version);
  return bytes;
}

/// Rank 0 runs another version: the caller is told so, not that rank 0 died.
TEST(Ports, RankZeroHasAnotherFrameVersion) {
  sys::PosixNetwork network;
  const auto listener = network.listen("127.0.0.1:0");
  ProcessCluster names({.ranks = 2, .scenario = "-", .wire = Wire::tcp, .absent = {0, 1}});
  ProcessCluster cluster({.ranks = 2,
                          .scenario = "work 0.1 10",
                          .wire = Wire::tcp,
                          .environment = kShort,
                          .addresses = {listener->address(), names.addresses()[1]},
                          .absent = {0}});
  std::unique_ptr<sys::Connection> caller;
  const Deadline deadline = Deadline::after(5s);
  while (!caller && !deadline.passed()) caller = listener->accept();
  ASSERT_NE(caller, nullptr);
  (void)caller->write(foreign_frame(wire::kFrameVersion + 1));
  const Verdict verdict = verdict_of(cluster.finish(10s)[1]);
  EXPECT_EQ(verdict.kind, "ConfigError");
  EXPECT_THAT(verdict.message,
              AllOf(HasSubstr(fmt::format("whose frames have version {}; this rank's have {}",
                                          wire::kFrameVersion + 1, wire::kFrameVersion)),
                    HasSubstr("rank_program"), Not(HasSubstr("died"))));
}

/// And a caller of another version gets an answer, from which it can tell.
TEST(Ports, ACallerWithAnotherFrameVersionIsAnswered) {
  ProcessCluster cluster({.ranks = 2,
                          .scenario = "work 0.1 10",
                          .wire = Wire::tcp,
                          .environment = kShort,
                          .absent = {1}});
  sys::PosixNetwork network;
  std::unique_ptr<sys::Connection> connection;
  const Deadline deadline = Deadline::after(5s);
  const std::vector<std::byte> words = foreign_frame(wire::kFrameVersion + 1);
  std::size_t said = 0;
  while (said == 0 && !deadline.passed()) {  // rank 0 may not listen yet
    if (!connection || !connection->error().ok())
      connection = network.connect(cluster.addresses()[0]);
    said = connection->write(words).bytes;
  }
  std::array<std::byte, 5> answer{};
  while (connection->read(answer).bytes == 0 && !deadline.passed()) std::this_thread::yield();
  EXPECT_TRUE(std::equal(answer.begin(), answer.begin() + 4, words.begin()));
  EXPECT_EQ(answer[4], std::byte{wire::kFrameVersion});
  EXPECT_THAT(verdict_of(cluster.finish(10s)[0]).message,
              AllOf(HasSubstr("it runs another version of lockstep"), HasSubstr("rank_program")));
}

/// A supervisor starts a rank again at once, while the others have not left the old generation yet.
TEST(Restarts, ARankThatIsStartedAgainAtOnceWaitsForTheNextGeneration) {
  ProcessCluster cluster({.ranks = 3,
                          .scenario = "rejoins 2",
                          .wire = Wire::tcp,
                          .environment = {"TEST_LEAVE_MS=1000"}});
  ASSERT_TRUE(cluster.wait_for_all("at work in generation 1\n", 20s));
  (void)cluster.process(1).signal(sys::Signal::kill);
  ASSERT_TRUE(cluster.process(1).wait(Deadline::after(5s)).has_value());
  cluster.start(1);
  const auto outcomes = cluster.finish(30s);
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.ok()) << outcome.how() << "\n" << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("left generation 2"));
  }
  EXPECT_THAT(outcomes[0].text,
              AllOf(HasSubstr("before the next one; rank 1 is pid"), HasSubstr("came later")));
}

class Returning : public testing::TestWithParam<Wire> {};

/// It was stopped for so long that the others gave it up and began anew with another process in its
/// place. Ranks other than rank 0 have addresses of their own choice: it keeps the one it had.
TEST_P(Returning, F8AStoppedProcessIsToldBothGenerations) {
  ProcessCluster names({.ranks = 1, .scenario = "-", .wire = GetParam(), .absent = {0}});
  ClusterOptions options{.ranks = 3,
                         .scenario = "rejoins 3",
                         .wire = GetParam(),
                         .environment = {"TEST_DEAD_MS=600"},
                         .addresses = {names.addresses()[0], "", ""}};
  ProcessCluster cluster(options);
  ASSERT_TRUE(cluster.wait_for_all("at work in generation 1\n", 20s));
  ASSERT_TRUE(cluster.process(2).signal(sys::Signal::stop).ok());
  options.absent = {0, 1};
  ProcessCluster substitute(options);
  ASSERT_TRUE(substitute.wait_for(2, "at work in generation 2\n", 20s)) << cluster.text(0);
  ASSERT_TRUE(cluster.process(2).signal(sys::Signal::resume).ok());
  ASSERT_TRUE(cluster.wait_for(2, "code=ABORTED", 20s)) << cluster.text(2);
  EXPECT_THAT(cluster.text(2), AllOf(HasSubstr("is of generation 1, which is over"),
                                     HasSubstr(fmt::format("in generation 2 rank 2 is pid {} ",
                                                           substitute.process(2).pid()))));
  for (const int rank : {0, 1}) {
    EXPECT_THAT(cluster.text(rank), Not(HasSubstr("left generation 2"))) << "nobody is hurt";
    (void)cluster.process(rank).signal(sys::Signal::kill);
  }
}

INSTANTIATE_TEST_SUITE_P(Over, Returning, testing::Values(Wire::local, Wire::tcp, Wire::tls),
                         [](const auto& wire) { return to_string(wire.param); });

/// The address of a Service is not one of the pod's own.
TEST(Ports, AnAddressOfAnotherMachineNamesTheVariableThatHelps) {
  ProcessCluster cluster({.ranks = 2,
                          .scenario = "work 0.1 10",
                          .wire = Wire::tcp,
                          .environment = kShort,
                          .addresses = {"192.0.2.1:4000", "192.0.2.2:4000"},
                          .absent = {1}});
  const Verdict verdict = verdict_of(cluster.finish(10s)[0]);
  EXPECT_EQ(verdict.kind, "SystemError");
  EXPECT_THAT(verdict.message, HasSubstr("LOCKSTEP_BIND=0.0.0.0"));
}

/// A socket that listens and takes no calls: after the first ones the system drops what comes, as a
/// firewall does.
class FullPort {
 public:
  FullPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(here);
    auto* address = reinterpret_cast<sockaddr*>(&here);
    EXPECT_EQ(::bind(socket_.get(), address, size), 0);
    EXPECT_EQ(::listen(socket_.get(), 0), 0);
    EXPECT_EQ(::getsockname(socket_.get(), address, &size), 0);
    address_ = fmt::format("127.0.0.1:{}", ntohs(here.sin_port));
    for (int i = 0; i < 4; ++i) waiting_.push_back(network_.connect(address_));
  }
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  sys::Descriptor socket_;
  std::string address_;
  sys::PosixNetwork network_;
  std::vector<std::unique_ptr<sys::Connection>> waiting_;
};

TEST(Ports, C14ACallThatIsDroppedIsToldFromOneThatIsRefused) {
  const FullPort port;
  ProcessCluster names({.ranks = 2, .scenario = "-", .wire = Wire::tcp, .absent = {0, 1}});
  const auto outcomes = join({.ranks = 2,
                              .wire = Wire::tcp,
                              .addresses = {port.address(), names.addresses()[1]},
                              .absent = {0}});
  const Verdict verdict = verdict_of(outcomes[1]);
  EXPECT_EQ(verdict.kind, "Timeout");
  EXPECT_THAT(verdict.message,
              HasSubstr(fmt::format("the call to {} is not answered at all (SYN unanswered): its "
                                    "host is down, or a firewall drops it",
                                    port.address())));
  const auto refused =
      join({.ranks = 2, .wire = Wire::tcp, .addresses = names.addresses(), .absent = {0}});
  EXPECT_THAT(verdict_of(refused[1]).message,
              AllOf(HasSubstr("Connection refused"), Not(HasSubstr("unanswered"))));
}

TEST(Ports, C14AHandshakeThatIsNotAnswered) {
  sys::PosixNetwork network;
  const auto silent = network.listen("127.0.0.1:0");
  ProcessCluster names({.ranks = 2, .scenario = "-", .wire = Wire::tls, .absent = {0, 1}});
  const auto outcomes = join({.ranks = 2,
                              .wire = Wire::tls,
                              .addresses = {silent->address(), names.addresses()[1]},
                              .absent = {0}});
  EXPECT_THAT(verdict_of(outcomes[1]).message,
              HasSubstr("has taken the call and does not answer the handshake"));
}

/// D3: rank 0 has two descriptors for each other rank.
TEST(JoiningOnOneHost, D3TheSoftLimitOfDescriptorsIsRaised) {
  constexpr int kRanks = 24;
  const std::vector<std::string> limited = {"sh", "-c", R"(ulimit -Sn 40; exec "$@")", "sh"};
  ProcessCluster cluster(
      {.ranks = kRanks, .scenario = "work 0.1 10", .wrappers = std::vector(kRanks, limited)});
  for (const Outcome& outcome : cluster.finish(20s)) {
    EXPECT_TRUE(outcome.ok()) << outcome.how() << "\n" << outcome.text;
  }
}

/// D28: the first rank of the host makes the shared memory. It is not ended by a signal.
TEST(JoiningOnOneHost, D28ALimitOfFileSizesIsNamedToAll) {
  const std::vector<std::string> limited = {"sh", "-c", R"(ulimit -f 1000; exec "$@")", "sh"};
  ProcessCluster cluster({.ranks = 2, .scenario = "work 0.1 10", .wrappers = {limited, limited}});
  for (const Outcome& outcome : cluster.finish(20s)) {
    const Verdict verdict = verdict_of(outcome);
    EXPECT_EQ(verdict.kind, "SystemError");
    EXPECT_EQ(verdict.code, "RESOURCE_EXHAUSTED");
    EXPECT_THAT(verdict.message,
                AllOf(HasSubstr("room for shared memory"), HasSubstr("ulimit -f")));
  }
}

TEST(Ports, C12TakenPort) {
  sys::PosixNetwork network;
  const auto listener = network.listen("127.0.0.1:0");
  ProcessCluster names({.ranks = 2, .scenario = "-", .wire = Wire::tcp, .absent = {0, 1}});
  const auto outcomes = join(
      {.ranks = 2, .wire = Wire::tcp, .addresses = {names.addresses()[0], listener->address()}});
  const Verdict verdict = verdict_of(outcomes[1]);
  EXPECT_EQ(verdict.kind, "SystemError");
  EXPECT_THAT(verdict.message, AllOf(HasSubstr("cannot listen at " + listener->address()),
                                     HasSubstr("in use"), HasSubstr("LOCKSTEP_PORT_BASE")));
  EXPECT_THAT(verdict_of(outcomes[0]).message, HasSubstr("rank 1"));
}

/// What a killed run left behind does not stop the next one.
TEST(Ports, C13AStaleSocketFileIsTakenOver) {
  ProcessCluster cluster({.ranks = 2, .scenario = "work 20 10"});
  ASSERT_TRUE(cluster.wait_for_all("working", 10s)) << cluster.text(0);
  for (const int rank : {0, 1}) {
    (void)cluster.process(rank).signal(sys::Signal::kill);
    ASSERT_TRUE(cluster.process(rank).wait(Deadline::after(5s)).has_value());
  }
  for (const int rank : {0, 1}) cluster.start(rank);
  EXPECT_TRUE(cluster.wait_for_all("working", 10s)) << cluster.text(0) << cluster.text(1);
}

TEST(Ports, C13APortOfAKilledRunIsFreeAtOnce) {
  ProcessCluster cluster({.ranks = 2, .scenario = "work 20 10", .wire = Wire::tcp});
  ASSERT_TRUE(cluster.wait_for_all("working", 10s)) << cluster.text(0);
  for (const int rank : {0, 1}) {
    (void)cluster.process(rank).signal(sys::Signal::kill);
    ASSERT_TRUE(cluster.process(rank).wait(Deadline::after(5s)).has_value());
  }
  for (const int rank : {0, 1}) cluster.start(rank);
  EXPECT_TRUE(cluster.wait_for_all("working", 10s)) << cluster.text(0) << cluster.text(1);
}

}  // namespace
}  // namespace lockstep::processes
