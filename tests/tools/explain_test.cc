#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "tests/tools/command.h"

namespace lockstep::tool {
namespace {

using testing::HasSubstr;
using testing::Not;

/// What explain prints; the command must succeed.
std::string explain(const std::string& arguments) {
  const Result result = lockstep_command("explain " + arguments);
  EXPECT_EQ(result.code, 0) << result.err;
  return result.out;
}

/// The line of the table that begins with this algorithm.
std::string candidate(const std::string& text, const std::string& algorithm) {
  for (const std::string& line : lines_of(text)) {
    if (line.size() > 2 && line.substr(2).starts_with(algorithm + " ")) return line;
  }
  return {};
}

std::string choice(const std::string& text) {
  std::smatch match;
  return std::regex_search(text, match, std::regex("\nchoice: ([a-z_]+):")) ? match[1].str() : "";
}

TEST(Explain, SmallGoesThroughSlotsAndLargeInOnePass) {
  EXPECT_EQ(choice(explain("all_reduce -n 2 -b 4")), "slots");
  EXPECT_EQ(choice(explain("all_reduce -n 8 -b 4M")), "one_pass");
}

TEST(Explain, PrintsHowManyConnectionsARankNeeds) {
  EXPECT_THAT(explain("all_gather -n 256 -b 64K --access messages"),
              HasSubstr("connections: a rank talks to up to 15 of the 255 others"));
  EXPECT_THAT(explain("reduce_scatter -n 256 -b 16M --access messages"),
              HasSubstr("connections: a rank talks to up to 9 of the 255 others"));
  EXPECT_THAT(explain("all_to_all -n 256 -b 16M --access messages"),
              HasSubstr("connections: a rank talks to up to 255 of the 255 others"));
}

TEST(Explain, MarksTheChoiceInTheTable) {
  const std::string text = explain("all_reduce -n 8 -b 4M");
  EXPECT_EQ(candidate(text, choice(text)).front(), '*');
  EXPECT_EQ(candidate(text, "direct").front(), ' ');
  EXPECT_THAT(text, HasSubstr("all_reduce of 4 MiB (1048576 float32) over 8 ranks on 1 host"));
}

TEST(Explain, SharedMemoryOnlyWhereThereIsSome) {
  for (const char* how : {"--access messages", "--hosts 2"}) {
    const std::string text = explain(std::string("all_reduce -n 8 -b 4M ") + how);
    EXPECT_THAT(candidate(text, "one_pass"), HasSubstr("cannot serve"));
    EXPECT_NE(choice(text), "one_pass");
  }
}

TEST(Explain, RingOnlyWithAnyOrder) {
  const std::string fixed = explain("all_reduce -n 8 -b 4M --access messages");
  EXPECT_THAT(candidate(fixed, "ring"), HasSubstr("cannot serve"));
  const std::string any = explain("all_reduce -n 8 -b 4M --access messages --order any");
  EXPECT_THAT(candidate(any, "ring"), Not(HasSubstr("cannot serve")));
  EXPECT_EQ(choice(explain("all_reduce -n 8 -b 4M --access messages --algorithms all_reduce=ring")),
            choice(fixed));
}

TEST(Explain, ObeysTheUsersWordForItsSizes) {
  const std::string rule = " --algorithms all_reduce=direct:0-64K,tree:64K-";
  EXPECT_EQ(choice(explain("all_reduce -n 4 -b 32K" + rule)), "direct");
  EXPECT_EQ(choice(explain("all_reduce -n 4 -b 64K" + rule)), "tree");
}

TEST(Explain, FiguresCanBeReplaced) {
  const std::string text =
      explain("all_reduce -n 4 --hosts 4 --costs tcp.alpha=5,tcp.bandwidth=10e9");
  EXPECT_THAT(text, HasSubstr("tcp 5 us a message, 10.0 GB/s"));
}

TEST(Explain, SeveralSubtreesOnARankSendMore) {
  const std::string rule = " -b 1M --access messages --algorithms all_reduce=direct";
  const std::string text = explain("all_reduce -n 2 --replicas 3" + rule);
  // Half of 1 MiB to the other rank as two pieces, and the half of the result.
  EXPECT_THAT(text, HasSubstr("holds up to 2 subtrees"));
  EXPECT_THAT(text, HasSubstr("sends up to 1572864 bytes instead of 1048576"));
  EXPECT_THAT(explain("all_reduce -n 2 --replicas 4" + rule), Not(HasSubstr("subtrees")));
}

TEST(Explain, PrintsAPlan) {
  const std::string text =
      explain("all_reduce -n 3 -b 12 --access messages --algorithms all_reduce=direct --plan 1");
  EXPECT_THAT(text, HasSubstr("plan of rank 1 (direct)"));
  EXPECT_THAT(text, HasSubstr("send     input["));
  EXPECT_THAT(text, HasSubstr("receive  "));
  EXPECT_THAT(text, HasSubstr("(complete)"));
  const std::string shared = explain("all_reduce -n 4 -b 4 --plan 3");
  EXPECT_THAT(shared, HasSubstr("(rank 0's slot[0..1) + rank 1's slot[0..1)) + (rank 2's"));
}

TEST(Explain, KnowsEveryCollective) {
  for (const char* kind : {"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter",
                           "gather", "scatter", "all_to_all", "barrier", "send_receive"}) {
    for (const char* how : {"", " --hosts 3", " -d bfloat16 -b 0", " --plan 2"}) {
      EXPECT_NE(choice(explain(std::string(kind) + " -n 5" + how)), "") << kind << how;
    }
  }
}

}  // namespace
}  // namespace lockstep::tool
