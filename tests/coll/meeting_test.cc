// Where ranks listen, and whom rank 0 takes in.
#include "coll/meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "coll/admission.h"
#include "lockstep/error.h"
#include "sys/host_identity.h"

namespace lockstep::coll {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

TEST(MeetingOf, LoopbackAddressesAreSocketsOfTheUsers) {
  const Meeting meeting = meeting_of({"localhost:4000", "127.0.0.1:4001", "[::1]:4002", ""});
  EXPECT_FALSE(meeting.between_machines);
  // No file: nothing is left behind by a process that is killed.
  EXPECT_THAT(meeting.addresses[0], AllOf(StartsWith("unix:@lockstep-"), EndsWith("-4000")));
  EXPECT_THAT(meeting.addresses[1], EndsWith("-4001"));
  EXPECT_THAT(meeting.addresses[2], EndsWith("-4002"));
  EXPECT_EQ(meeting.addresses[3], "");
}

/// As of TF_CONFIG with the machine's own name in every entry.
TEST(MeetingOf, TheOwnNameInAllEntriesIsAsGoodAsLoopback) {
  const std::string own = sys::host_name();
  const Meeting meeting = meeting_of({own + ":4000", own + ":4001"});
  EXPECT_FALSE(meeting.between_machines);
  EXPECT_EQ(meeting.addresses, meeting_of({"localhost:4000", "localhost:4001"}).addresses);
  // Somebody may be elsewhere.
  for (const std::string& other : {std::string("node1:4000"), std::string("10.0.0.7:4000"),
                                   std::string(), std::string("unix:/run/a")}) {
    const std::vector<std::string> addresses = {own + ":4000", other};
    EXPECT_TRUE(meeting_of(addresses).between_machines) << other;
    EXPECT_EQ(meeting_of(addresses).addresses, addresses);
  }
}

/// LOCKSTEP_HOST: what one host is, the user says.
TEST(MeetingOf, NamedHostsMeetAtTheirPorts) {
  const std::string own = sys::host_name();
  ::setenv("LOCKSTEP_HOST", "a", 1);
  for (const std::string& host : {own, std::string("localhost")}) {
    const std::vector<std::string> addresses = {host + ":4000", host + ":4001"};
    EXPECT_TRUE(meeting_of(addresses).between_machines) << host;
    EXPECT_EQ(meeting_of(addresses).addresses, addresses);
  }
  EXPECT_THROW(meeting_of({"node0"}), ConfigError);
  ::unsetenv("LOCKSTEP_HOST");
}

TEST(MeetingOf, OtherAddressesStayAsTheyAre) {
  const std::vector<std::string> machines = {"node0:4000", "10.0.0.7:4000"};
  EXPECT_TRUE(meeting_of(machines).between_machines);
  EXPECT_EQ(meeting_of(machines).addresses, machines);
  const std::vector<std::string> sockets = {"unix:/run/a", "unix:/run/b"};
  EXPECT_FALSE(meeting_of(sockets).between_machines);
  EXPECT_EQ(meeting_of(sockets).addresses, sockets);
}

TEST(MeetingOf, ALoopbackAddressAmongOthersIsRefused) {
  EXPECT_THROW(meeting_of({"node0:4000", "localhost:4000"}), ConfigError);
  EXPECT_THROW(meeting_of({"", "node1:4000"}), ConfigError);
  EXPECT_THROW(meeting_of({"node0"}), ConfigError);
}

TEST(ListeningAddress, TakesThePortOfTheEntryUnlessItHasOne) {
  EXPECT_EQ(listening_address("10.0.0.7", "node1:4000"), "10.0.0.7:4000");
  EXPECT_EQ(listening_address("10.0.0.7:5000", "node1:4000"), "10.0.0.7:5000");
  EXPECT_EQ(listening_address("fd00::2", "node1:4000"), "[fd00::2]:4000");
  EXPECT_EQ(listening_address("[fd00::2]", "node1:4000"), "[fd00::2]:4000");
  EXPECT_EQ(listening_address("[fd00::2]:5000", "node1:4000"), "[fd00::2]:5000");
  EXPECT_EQ(listening_address("10.0.0.7", ""), "10.0.0.7:0");
}

class Admission : public testing::Test {
 protected:
  Admission() {
    options_.addresses = {"node0:1", "node1:1"};
    options_.arithmetic = "one thread";
    own_.size = 2;
    own_.cluster = 5;
    caller_ = own_;
    caller_.rank = 1;
  }
  std::string said(const wire::Hello* taken = nullptr) {
    return objection(caller_, own_, options_, taken).message();
  }

  JoinOptions options_;
  wire::Hello own_;
  wire::Hello caller_;
};

TEST_F(Admission, WhoWasGivenTheSameMayJoin) { EXPECT_EQ(said(), ""); }

TEST_F(Admission, EveryDifferenceIsNamed) {
  const wire::Hello good = caller_;
  const auto with = [&](auto change) {
    caller_ = good;
    change(caller_);
    return said();
  };
  EXPECT_THAT(with([](auto& hello) { hello.library = 0x010203; }), HasSubstr("version 1.2.3"));
  EXPECT_THAT(with([](auto& hello) { hello.size = 3; }), HasSubstr("3 ranks, rank 0 2"));
  EXPECT_THAT(with([](auto& hello) { hello.cluster = 6; }), HasSubstr("node1:1"));
  EXPECT_THAT(with([](auto& hello) { hello.options = 1; }), HasSubstr("plaintext_data=false"));
  EXPECT_THAT(with([](auto& hello) { hello.rank = 0; }), HasSubstr("rank 0 is the process"));
  EXPECT_THAT(with([](auto& hello) { hello.arithmetic = 1; }), "");  // a warning
  options_.require_same_bits = true;
  EXPECT_THAT(with([](auto& hello) { hello.arithmetic = 1; }), HasSubstr("one thread"));
}

TEST_F(Admission, ARankIsTakenOnce) {
  wire::Hello first = caller_;
  first.pid = 4711;
  EXPECT_THAT(said(&first), HasSubstr("joined already as pid 4711"));
}

TEST_F(Admission, WhatDiffersIsNamedWithBothValues) {
  const std::string rank_0 = agreed_lines(options_);
  EXPECT_EQ(first_difference(rank_0, rank_0), "");
  JoinOptions other = options_;
  other.addresses[1] = "node7:1";
  EXPECT_EQ(first_difference(rank_0, agreed_lines(other)),
            "rank 0 was given \"address of rank 1: node1:1\", this rank \"address of rank 1: "
            "node7:1\"");
  other = options_;
  other.plaintext_data = true;
  EXPECT_THAT(first_difference(rank_0, agreed_lines(other)),
              AllOf(HasSubstr("plaintext_data: false"), HasSubstr("plaintext_data: true")));
  other = options_;
  other.addresses.emplace_back("node2:1");
  EXPECT_THAT(first_difference(rank_0, agreed_lines(other)),
              AllOf(HasSubstr("ranks: 2"), HasSubstr("ranks: 3")));
  // Of a long list only the beginning is sent.
  EXPECT_EQ(first_difference(rank_0.substr(0, rank_0.size() - 2), rank_0), "");
  EXPECT_EQ(first_difference("", rank_0), "");
  EXPECT_THAT(first_difference("algorithms: \x1b[2J\nplaintext_data: false\n", rank_0),
              HasSubstr("\"algorithms: \\x1b[2J\""));
}

}  // namespace
}  // namespace lockstep::coll
