// A look at every transport, in little time; transports_test.cc goes through all layouts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "tests/processes/cluster.h"
#include "tests/processes/held_memory.h"
#include "tests/processes/same_bits.h"

namespace lockstep::processes {
namespace {

TEST(Processes, OneNeedsNobody) {
  expect_same_bits({.ranks = 1, .scenario = "exercise own"}, "threads");
}
TEST(Processes, ShareMemory) {
  expect_same_bits({.ranks = 3, .scenario = "exercise own"}, "shared memory");
}
TEST(Processes, ReachBuffersOfTheSession) {
  expect_same_bits({.ranks = 2, .scenario = "exercise session"}, "shared memory");
}
TEST(Processes, SpeakTcp) {
  expect_same_bits({.ranks = 2, .scenario = "exercise own", .wire = Wire::tcp}, "tcp");
}
TEST(Processes, SpeakTls) {
  expect_same_bits({.ranks = 2, .scenario = "exercise own", .wire = Wire::tls}, "tls");
}
TEST(Processes, OfTwoHosts) {
  expect_same_bits(
      {.ranks = 4, .scenario = "exercise own", .wire = Wire::tls, .hosts = {"a", "a", "b", "b"}},
      "shared memory and tls");
}

// How values go through slots changes no bit, and chunks may be shorter than anything else.
TEST(Processes, StageAsTheyAreTold) {
  for (const char* staging : {"staged.chunk=4K", "staged.chunk=1M", "staged.around_cache=1",
                              "staged.chunk=128K,staged.around_cache=1"}) {
    SCOPED_TRACE(staging);
    expect_same_bits({.ranks = 2,
                      .scenario = "exercise own",
                      .environment = {std::string("LOCKSTEP_COSTS=") + staging}},
                     "shared memory");
  }
}

/// What is measured is the same on all ranks, or they would disagree; it is said at level debug.
TEST(Processes, AgreeOnTheStagingTheyMeasure) {
  ProcessCluster cluster(
      {.ranks = 2, .scenario = "exercise own", .environment = {"LOCKSTEP_LOG=debug"}});
  const auto outcomes = cluster.finish(std::chrono::seconds(20));
  const auto said = [&](std::size_t rank) {
    const std::string& text = outcomes[rank].text;
    EXPECT_TRUE(outcomes[rank].ok()) << text;
    const std::size_t begin = text.find("ranks of this host stage ");
    return begin == std::string::npos ? std::string()
                                      : text.substr(begin, text.find('\n', begin) - begin);
  };
  EXPECT_EQ(said(0), said(1));
}

// Which way a sum goes depends on where its buffers lie; a repeated call must not take the last
// one's. 1500 elements are too many for slots where a rank has two replicas.
TEST(Processes, RepeatCallsWithBuffersOfOtherKinds) {
  for (const int count : {1, 64, 1500}) {
    ProcessCluster cluster(
        {.ranks = 2,
         .scenario = fmt::format("alternate {}", count),
         .environment_of = {{0, {"TEST_REPLICAS=1"}}, {1, {"TEST_REPLICAS=2"}}}});
    for (const Outcome& outcome : cluster.finish(std::chrono::seconds(20))) {
      EXPECT_TRUE(outcome.ok()) << count << " elements: " << outcome.how() << "\n" << outcome.text;
    }
  }
}

/// Threads of a rank with a subgroup each, all of which span all ranks.
TEST(Processes, AddSlicesOfOneSumAtTheSameTime) {
  for (const Wire wire : {Wire::local, Wire::tcp, Wire::tls}) {
    ProcessCluster cluster(
        {.ranks = 3,
         .scenario = "slices 40003",
         .wire = wire,
         .environment_of = {
             {0, {"TEST_REPLICAS=1"}}, {1, {"TEST_REPLICAS=2"}}, {2, {"TEST_REPLICAS=3"}}}});
    for (const Outcome& outcome : cluster.finish(std::chrono::seconds(30))) {
      EXPECT_TRUE(outcome.ok()) << to_string(wire) << ": " << outcome.how() << "\n" << outcome.text;
      EXPECT_EQ(outcome.text.find("in place") != std::string::npos, wire == Wire::local)
          << outcome.text;
    }
  }
}

/// A child that uses or closes what it has inherited is told so, and the group works on.
TEST(Processes, ForkWithoutHarm) {
  for (const Wire wire : {Wire::local, Wire::tcp, Wire::tls}) {
    // A child has none of the threads whose memory it has inherited: a search for leaks would find
    // what only they knew of.
    ProcessCluster cluster({.ranks = 3,
                            .scenario = "fork 1",
                            .wire = wire,
                            .environment = {"ASAN_OPTIONS=detect_leaks=0"}});
    const auto outcomes = cluster.finish(std::chrono::seconds(30));
    for (const Outcome& outcome : outcomes) {
      EXPECT_TRUE(outcome.ok()) << to_string(wire) << ": " << outcome.how() << "\n" << outcome.text;
    }
    EXPECT_NE(outcomes[1].text.find("child 0"), std::string::npos) << outcomes[1].text;
  }
}

/// A send is over when the receiver has the data, whatever connects the two.
TEST(Processes, ASendIsOverWhenItIsReceived) {
  std::vector<ClusterOptions> clusters;
  for (const Wire wire : {Wire::local, Wire::tcp, Wire::tls}) {
    clusters.push_back({.ranks = 2, .scenario = "unasked", .wire = wire});
  }
  clusters.push_back(
      {.ranks = 3, .scenario = "unasked", .wire = Wire::tcp, .hosts = {"a", "a", "b"}});
  for (const ClusterOptions& options : clusters) {
    ProcessCluster cluster(options);
    for (const Outcome& outcome : cluster.finish(std::chrono::seconds(30))) {
      EXPECT_TRUE(outcome.ok()) << to_string(options.wire) << ": " << outcome.how() << "\n"
                                << outcome.text;
    }
  }
}

/// A group that all its members have closed holds no memory, and its place is free.
TEST(Processes, SplitAndMessageInFlatMemory) {
  // How many groups are between open and freed depends on how far the ranks are apart.
  for (const Held& held : held_after({.ranks = 2, .scenario = "splits 2000"})) {
    EXPECT_LE(held.open, held.early + 1024) << "KiB";
    EXPECT_LE(held.heap_open, held.heap_early + 256) << "KiB";
  }
}

/// Also where ranks of other hosts are in the group: rings connect those of one.
TEST(Processes, SplitAndMessageInFlatMemoryBesideOtherHosts) {
  for (const Held& held : held_after(
           {.ranks = 3, .scenario = "splits 200", .wire = Wire::tcp, .hosts = {"a", "a", "b"}})) {
    EXPECT_LE(held.open, held.early + 1024) << "KiB";
    EXPECT_LE(held.heap_open, held.heap_early + 1024) << "KiB";
  }
}

TEST(Processes, GiveBackTheMemoryOfClosedGroups) {
  constexpr int kGroups = 100;
  constexpr int kRanks = 4;
  for (const Held& held : held_after({.ranks = kRanks, .scenario = "splits 100 keep"})) {
    EXPECT_LE(held.open - held.before, kGroups * kRanks * 96) << "KiB: groups that moved little";
    EXPECT_LE(held.closed - held.before, kRanks * 256) << "KiB";
    EXPECT_LE(held.heap_open - held.heap_before, kGroups * 64) << "KiB: of a rank";
  }
}

}  // namespace
}  // namespace lockstep::processes
