// Help, version and how wrong command lines are refused.
#include "tests/tools/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace lockstep::tool {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(Command, PrintsItsVersion) {
  const Result result = lockstep_command("--version");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "lockstep " LOCKSTEP_VERSION "\n");
}

TEST(Command, HelpNamesTheSubcommandsAndShowsExamples) {
  const Result result = lockstep_command("--help");
  EXPECT_EQ(result.code, 0);
  for (const char* word :
       {"launch", "bench", "explain", "plans", "data", "doctor", "resolve", "Examples:"}) {
    EXPECT_THAT(result.out, HasSubstr(word));
  }
}

TEST(Command, EverySubcommandHasHelpWithExamples) {
  for (const char* name : {"launch", "bench", "explain", "plans", "resolve", "data", "data inspect",
                           "data count", "data verify", "data shard"}) {
    const Result result = lockstep_command(std::string(name) + " --help");
    EXPECT_EQ(result.code, 0) << name;
    EXPECT_THAT(result.out, HasSubstr("Examples:"));
    EXPECT_THAT(result.out, HasSubstr(std::string("lockstep ") + name));
  }
}

/// What to do is said in the lines after the first.
TEST(Command, AnErrorIsToldWhole) {
  ::setenv("LOCKSTEP_RANK", "0", 1);
  ::setenv("LOCKSTEP_ADDRESSES", "10.9.9.1:4000,10.9.9.2:4000", 1);
  const Result result = lockstep_command("bench");
  ::unsetenv("LOCKSTEP_RANK");
  ::unsetenv("LOCKSTEP_ADDRESSES");
  EXPECT_EQ(result.code, 1) << result.out << result.err;
  EXPECT_THAT(result.err, StartsWith("lockstep: ranks on several machines need a key"));
  EXPECT_THAT(result.err, HasSubstr("\n  head -c 32 /dev/urandom"));
  EXPECT_THAT(result.err, HasSubstr("LOCKSTEP_KEY_FILE"));
}

struct Wrong {
  const char* arguments;
  const char* message;
};

class WrongCommandLine : public testing::TestWithParam<Wrong> {};

TEST_P(WrongCommandLine, IsOneLineAndExitCodeTwo) {
  const Result result = lockstep_command(GetParam().arguments);
  EXPECT_EQ(result.code, 2) << result.out << result.err;
  EXPECT_EQ(lines_of(result.err).size(), 1U) << result.err;
  EXPECT_THAT(result.err, HasSubstr(GetParam().message));
  EXPECT_THAT(result.err, HasSubstr("--help"));
  EXPECT_EQ(result.out, "");
}

INSTANTIATE_TEST_SUITE_P(
    Cases, WrongCommandLine,
    testing::Values(
        Wrong{"", "subcommand is required"}, Wrong{"fly", "no command is called \"fly\""},
        Wrong{"bench --fly", "--fly"}, Wrong{"bench all_reduces", "\"all_reduces\""},
        Wrong{"bench -b 4Q", "-b is \"4Q\""}, Wrong{"bench -b -1", "no size"},
        Wrong{"bench -e 99999999999G", "-e"}, Wrong{"bench -b 8 -e 4", "larger than -e"},
        Wrong{"bench -i 0", "-i is 0"}, Wrong{"bench -i 4 -f 2", "exclude"},
        Wrong{"bench -f 1", "-f is 1"}, Wrong{"bench -n 0", "-n is 0"},
        Wrong{"bench -n many", "many"}, Wrong{"bench -t 0", "-t is 0"},
        Wrong{"bench -t 2 -r 2", "-r is 2"}, Wrong{"bench -c 2", "-c is 2"},
        Wrong{"bench -d float17", "\"float17\""}, Wrong{"bench -o xor", "\"xor\""},
        Wrong{"bench -o mean -d int32", "mean of int32"}, Wrong{"bench -d bool", "sum of bool"},
        Wrong{"bench -o max -d complex64", "max of complex64"},
        Wrong{"bench send_receive -t 1", "2 ranks"}, Wrong{"bench --order tree", "--order"},
        Wrong{"bench --algorithms all_reduce=fastest", "fastest"},
        Wrong{"explain", "collective is required"}, Wrong{"explain all_reduce -n 0", "-n is 0"},
        Wrong{"explain all_reduce -n 2 --hosts 3", "--hosts is 3"},
        Wrong{"explain all_reduce -n 2 --plan 2", "--plan is 2"},
        Wrong{"explain all_reduce -n 3 --replicas 1,2", "2 numbers for 3 ranks"},
        Wrong{"explain all_reduce --replicas 0", "--replicas"},
        Wrong{"explain all_reduce -n 2 --hosts 2 --access shared", "one host"},
        Wrong{"explain all_reduce --access telepathy", "telepathy"},
        Wrong{"explain all_reduce -d all", "one element type"},
        Wrong{"explain all_reduce --costs speed=light", "speed"},
        Wrong{"plans all_reduces", "\"all_reduces\""}, Wrong{"plans --fast", "--fast"},
        Wrong{"resolve now", "now"}, Wrong{"launch", "no program"},
        Wrong{"launch -n 2 --", "no program behind --"}, Wrong{"launch -- true", "-n is required"},
        Wrong{"launch -n 0 -- true", "-n is 0"}, Wrong{"launch -n two -- true", "two"},
        Wrong{"launch -n 2 true", "write -- before"},
        Wrong{"launch --fly -n 2 -- true", "no option --fly"},
        Wrong{"launch -n 2 --hosts a,b -- true", "--rank-host"},
        Wrong{"launch -n 2 --rank-host 0 -- true", "--rank-host needs"},
        Wrong{"launch -n 2 --hosts a,b --rank-host 2 -- true", "--rank-host is 2"},
        Wrong{"launch -n 2 --hosts a,b --rank-host 0 -- true", "several hosts need a key"},
        Wrong{"launch -n 2 --hosts a,b --hostfile f -- true", "exclude"},
        Wrong{"launch --hostfile /no/such/file -- true", "cannot read /no/such/file"},
        Wrong{"launch -n 2 --key-file /no/such/file -- true", "cannot open"},
        Wrong{"launch -n 2 --port-base 65535 -- true", "--port-base is 65535"},
        Wrong{"launch -n 2 --bind a,b -- true", "--bind is \"a,b\""},
        Wrong{"launch -n 2 --grace -1 -- true", "--grace is -1"},
        Wrong{"launch -n 2 --settle nan -- true", "--settle is nan"},
        Wrong{"launch -n 2 --max-restarts -1 -- true", "--max-restarts is -1"},
        Wrong{"launch -n 2 --on-failure panic -- true", "\"panic\""},
        Wrong{"exec -- true", "--launcher is required"},
        Wrong{"exec --launcher 1", "no program behind --"}, Wrong{"data", "subcommand is required"},
        Wrong{"data fly", "no command is called \"fly\"; there are inspect, count, verify, shard"},
        Wrong{"data count", "FILE is required"}, Wrong{"data verify --fast a", "--fast"},
        Wrong{"data inspect -n few a", "few"},
        Wrong{"data shard --output o a", "--into is required"},
        Wrong{"data shard --into 2 a", "--output is required"},
        Wrong{"data shard --into 0 --output o a", "--into is 0"},
        Wrong{"data shard --into 2 --output o --compression rar a", "\"rar\""}));

}  // namespace
}  // namespace lockstep::tool
