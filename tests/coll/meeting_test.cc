// Where ranks listen, and whom rank 0 takes in.
#include "coll/meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "coll/admission.h"
#include "lockstep/error.h"
#include "sys/address.h"
#include "sys/posix_net.h"

namespace lockstep::coll {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

TEST(MeetingOf, LoopbackAddressesAreSocketFiles) {
  const Meeting meeting = meeting_of({"localhost:4000", "127.0.0.1:4001", "[::1]:4002", ""}, 0xab);
  EXPECT_FALSE(meeting.between_machines);
  EXPECT_THAT(meeting.addresses[0],
              AllOf(StartsWith("unix:/"), HasSubstr("/4000-00000000000000ab")));
  EXPECT_THAT(meeting.addresses[1], HasSubstr("/4001-"));
  EXPECT_THAT(meeting.addresses[2], HasSubstr("/4002-"));
  EXPECT_EQ(meeting.addresses[3], "");
  // Another cluster that uses the same port meets elsewhere.
  EXPECT_NE(meeting_of({"localhost:4000"}, 0xac).addresses[0], meeting.addresses[0]);
}

TEST(MeetingOf, OtherAddressesStayAsTheyAre) {
  const std::vector<std::string> machines = {"node0:4000", "10.0.0.7:4000"};
  EXPECT_TRUE(meeting_of(machines, 1).between_machines);
  EXPECT_EQ(meeting_of(machines, 1).addresses, machines);
  const std::vector<std::string> sockets = {"unix:/run/a", "unix:/run/b"};
  EXPECT_FALSE(meeting_of(sockets, 1).between_machines);
  EXPECT_EQ(meeting_of(sockets, 1).addresses, sockets);
}

TEST(MeetingOf, ALoopbackAddressAmongOthersIsRefused) {
  EXPECT_THROW(meeting_of({"node0:4000", "localhost:4000"}, 1), ConfigError);
  EXPECT_THROW(meeting_of({"", "node1:4000"}, 1), ConfigError);
  EXPECT_THROW(meeting_of({"node0"}, 1), ConfigError);
}

TEST(ListeningAddress, TakesThePortOfTheEntryUnlessItHasOne) {
  EXPECT_EQ(listening_address("10.0.0.7", "node1:4000"), "10.0.0.7:4000");
  EXPECT_EQ(listening_address("10.0.0.7:5000", "node1:4000"), "10.0.0.7:5000");
  EXPECT_EQ(listening_address("fd00::2", "node1:4000"), "[fd00::2]:4000");
  EXPECT_EQ(listening_address("[fd00::2]", "node1:4000"), "[fd00::2]:4000");
  EXPECT_EQ(listening_address("[fd00::2]:5000", "node1:4000"), "[fd00::2]:5000");
  EXPECT_EQ(listening_address("10.0.0.7", ""), "10.0.0.7:0");
}

/// The system closes a killed process's connections one by one: its socket may outlive by a moment
/// the connection by which the others see that it is gone.
TEST(SocketFiles, ThoseOfTheHostGoWithTheGroupEvenIfSomebodySeemsToListen) {
  wire::Hello own;
  own.host = 7;
  own.incarnation = 0x5a5a'0000'0000'0001;
  wire::Hello neighbour = own;
  neighbour.incarnation += 1;
  wire::Hello elsewhere = own;
  elsewhere.host = 8;
  elsewhere.incarnation += 2;
  sys::PosixNetwork network;
  std::vector<std::unique_ptr<sys::Listener>> doors;
  const auto has_file = [](const wire::Hello& member) {
    return std::filesystem::exists(sys::Address::parse(own_socket_file(member)).path);
  };
  for (const wire::Hello& member : {own, neighbour, elsewhere}) {
    doors.push_back(network.listen(own_socket_file(member)));
    ASSERT_TRUE(has_file(member));
  }
  remove_socket_files({own, neighbour, elsewhere}, own);
  EXPECT_FALSE(has_file(neighbour));
  EXPECT_TRUE(has_file(own));
  EXPECT_TRUE(has_file(elsewhere));
  remove_socket_files({own, neighbour, elsewhere}, own);  // again: nothing to do
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

}  // namespace
}  // namespace lockstep::coll
