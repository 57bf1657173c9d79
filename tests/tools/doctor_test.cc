// `lockstep doctor` with real processes: alone, under the launcher, and with ranks that are missing
// in various ways.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "sys/host_identity.h"
#include "tests/sys/temporary_directory.h"
#include "tests/tools/command.h"
#include "tests/tools/local_port.h"

namespace lockstep::tool {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using Manner = LocalPort::Manner;

/// doctor with these variables, "A=b C=d", in its environment.
Result doctor(const std::string& variables, const std::string& arguments) {
  std::vector<std::string> names;
  std::istringstream words(variables);
  for (std::string word; words >> word;) {
    names.push_back(word.substr(0, word.find('=')));
    ::setenv(names.back().c_str(), word.substr(word.find('=') + 1).c_str(), 1);
  }
  Result result = lockstep_command("doctor " + arguments);
  for (const std::string& name : names) ::unsetenv(name.c_str());
  return result;
}

Result launched_doctor(const std::string& options, const std::string& variables,
                       const std::string& arguments) {
  return lockstep_command(fmt::format("launch {} --no-prefix -- sh -c '{} exec \"{}\" doctor {}'",
                                      options, variables, LOCKSTEP_COMMAND, arguments));
}

/// Rank 0 of two, which are hosts of their own; the other one is at `peer`.
Result first_of_two(const std::string& peer, const std::string& own = "127.0.0.1:0") {
  std::string address = own;
  if (own == "127.0.0.1:0") address = LocalPort(Manner::refuses).address();
  return doctor(fmt::format("LOCKSTEP_HOST=a LOCKSTEP_INSECURE=1 LOCKSTEP_RANK=0 "
                            "LOCKSTEP_ADDRESSES={},{}",
                            address, peer),
                "--join-timeout 0.5");
}

/// Ranks of a host could not make their shared memory.
TEST(Doctor, FindsALimitOfFileSizes) {
  const Result result = launched_doctor("-n 1", "ulimit -f 1000000;", "");
  EXPECT_THAT(result.out, ContainsRegex("problem +limits .*files are limited to [0-9.]+ GiB"));
  EXPECT_THAT(result.out, HasSubstr("ulimit -f unlimited"));
}

TEST(Doctor, AloneLooksAtTheMachine) {
  const Result result = lockstep_command("doctor");
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("alone: no launcher"), ContainsRegex("ok +memory"),
                                ContainsRegex("(ok|warning) +cores +this process: [0-9]+ core"),
                                HasSubstr("0 problems")));
}

TEST(Doctor, RankZeroSpeaksForAll) {
  const Result result = launched_doctor("-n 3", "", "--json");
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  const auto document = nlohmann::json::parse(result.out);
  EXPECT_EQ(document["rank"], 0);
  EXPECT_EQ(document["size"], 3);
  EXPECT_EQ(document["joined"], true);
  EXPECT_EQ(document["transport"], "shared memory");
  std::map<std::string, int> checks;
  for (const auto& check : document["checks"]) {
    EXPECT_NE(check["verdict"], "problem") << check.dump();
    ++checks[check["check"]];
  }
  EXPECT_EQ(checks["place"], 3);
  EXPECT_EQ(checks["memory"], 3);
  EXPECT_EQ(checks["ports"], 9);  // each its own, and two others
  EXPECT_EQ(checks["bits"], 1);
  EXPECT_EQ(checks["clocks"], 1);
  ASSERT_EQ(document["pairs"].size(), 3U);
  for (const auto& pair : document["pairs"]) {
    EXPECT_EQ(pair["transport"], "shared memory");
    EXPECT_GT(pair["latency_us"], 0);
    EXPECT_GT(pair["bandwidth_gb_per_s"], 0);
  }
}

TEST(Doctor, PairsOfSeveralHosts) {
  // Ranks 0 and 1 are one host, rank 2 another.
  const Result result =
      launched_doctor("-n 3 --bind 127.0.0.1", "LOCKSTEP_HOST=$((LOCKSTEP_RANK / 2))", "");
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("3 ranks joined over shared memory and tls"));
  EXPECT_THAT(result.out, HasSubstr("  shared memory: 0-1\n  tls: 0-2 1-2\n"));
  EXPECT_THAT(result.out,
              ContainsRegex("ok +clocks +rank 0: rank 2: [+-]0\\.[0-9]+ ms from rank 0"));
  EXPECT_THAT(result.out, HasSubstr("latency in microseconds"));
  // The line can be used as it is.
  const std::size_t costs = result.out.find("LOCKSTEP_COSTS=tcp.alpha=");
  ASSERT_NE(costs, std::string::npos) << result.out;
  const std::string line = result.out.substr(costs, result.out.find('\n', costs) - costs);
  EXPECT_EQ(lockstep_command("explain all_reduce --costs " + line.substr(line.find('=') + 1)).code,
            0)
      << line;
}

TEST(Doctor, RanksThatShareACoreAreNamed) {
  const Result bound = lockstep_command(
      fmt::format("launch -n 2 --no-prefix -- taskset -c 0 '{}' doctor", LOCKSTEP_COMMAND));
  EXPECT_EQ(bound.code, 0) << bound.out << bound.err;
  EXPECT_THAT(bound.out,
              ContainsRegex("warning +cores +rank 0: ranks 0, 1 have 1 core among them"));
  const Result alone = lockstep_command(
      fmt::format("launch -n 1 --no-prefix -- taskset -c 0 '{}' doctor", LOCKSTEP_COMMAND));
  EXPECT_THAT(alone.out, ContainsRegex("ok +cores +this process: 1 core for this rank"));
}

TEST(Doctor, NamesARankThatDidNotCome) {
  const TemporaryDirectory directory;
  const Result result = doctor(
      fmt::format("LOCKSTEP_RANK=0 LOCKSTEP_ADDRESSES=unix:{0}/0,unix:{0}/1", directory.path()),
      "--join-timeout 0.5");
  EXPECT_EQ(result.code, 1) << result.out << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr(fmt::format("rank 1 at unix:{}/1: ", directory.path())),
                                HasSubstr("rank 1 did not call"), ContainsRegex("ok +memory"),
                                HasSubstr("not tried: not every rank reaches every other")));
}

TEST(Doctor, TellsRefusedUnansweredAndMuteApart) {
  const LocalPort refusing(Manner::refuses);
  EXPECT_THAT(first_of_two(refusing.address()).out, HasSubstr("Connection refused"));
  const LocalPort full(Manner::is_full);
  EXPECT_THAT(first_of_two(full.address()).out, HasSubstr("the call is not answered"));
  const LocalPort mute(Manner::is_mute);
  EXPECT_THAT(first_of_two(mute.address()).out,
              HasSubstr("connected, but no handshake: it says nothing"));
}

TEST(Doctor, TheOwnPortIsTaken) {
  const LocalPort taken(Manner::is_mute);
  const Result result = first_of_two("127.0.0.1:1", taken.address());
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out,
              ContainsRegex("problem +ports +rank 0: cannot listen at " + taken.address()));
}

TEST(Doctor, AddressesThatDoNotResolve) {
  const Result result = first_of_two("no-such-host.invalid:4000", "10.9.9.1:4000");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out,
              ContainsRegex("problem +names +rank 0: no-such-host.invalid:4000 does not "
                            "resolve"));
}

TEST(Doctor, TheOwnNameMattersToThoseWhoUseNames) {
  const std::string key = "LOCKSTEP_INSECURE=1 LOCKSTEP_RANK=0 LOCKSTEP_ADDRESSES=";
  EXPECT_THAT(doctor(key + "10.9.9.1:4000,10.9.9.2:4000", "--no-join").out,
              Not(ContainsRegex("warning +names")));
}

TEST(Doctor, RanksOfThisHostNeedNoPortsAndNoKey) {
  const std::string own = sys::host_name();
  for (const std::string& host : {std::string("localhost"), own}) {
    const Result result = doctor(
        fmt::format("LOCKSTEP_RANK=0 LOCKSTEP_ADDRESSES={0}:4000,{0}:4001", host), "--no-join");
    EXPECT_EQ(result.code, 0) << result.out;
    EXPECT_THAT(result.out,
                HasSubstr("none is opened: all ranks are on this host and meet at Unix sockets"));
    EXPECT_THAT(result.out, AllOf(Not(HasSubstr("several hosts")), Not(HasSubstr("4000"))));
  }
}

TEST(Doctor, Keys) {
  const std::string hosts = "LOCKSTEP_RANK=0 LOCKSTEP_ADDRESSES=10.9.9.1:4000,10.9.9.2:4000";
  EXPECT_THAT(doctor(hosts, "--no-join").out,
              ContainsRegex("problem +key +rank 0: none, but ranks of several hosts need one"));
  const TemporaryFile key("key");
  std::ofstream(key.path()) << std::string(64, '7');
  ::chmod(key.path().c_str(), 0644);
  const std::string with_key = hosts + " LOCKSTEP_KEY_FILE=" + key.path();
  const Result open = doctor(with_key, "--no-join");
  EXPECT_EQ(open.code, 1);
  EXPECT_THAT(open.out, HasSubstr("chmod 600"));
  ::chmod(key.path().c_str(), 0600);
  EXPECT_THAT(doctor(with_key, "--no-join").out, HasSubstr("which is private"));
}

TEST(Doctor, DifferentKeysAreFoundByJoining) {
  // 64 digits each; the rank is one of them.
  const Result result =
      launched_doctor("-n 2 --bind 127.0.0.1",
                      "LOCKSTEP_HOST=$LOCKSTEP_RANK "
                      "LOCKSTEP_KEY=${LOCKSTEP_RANK}"
                      "a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9",
                      "--join-timeout 1");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, ContainsRegex("ok +ports +rank 1: rank 0 at [0-9.:]+ answers"));
  EXPECT_THAT(result.out, ContainsRegex("problem +join +rank 1: wrong key"));
}

TEST(Doctor, WithoutJoiningNobodyIsCalled) {
  const Result result = launched_doctor("-n 2", "", "--no-join");
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("rank 0: rank 0 of 2"), HasSubstr("rank 1: rank 1 of 2"),
                                Not(HasSubstr("joined"))));
}

TEST(Doctor, WrongTimeout) {
  const Result result = lockstep_command("doctor --join-timeout 0");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("--join-timeout is 0; it must be above 0"));
}

}  // namespace
}  // namespace lockstep::tool
