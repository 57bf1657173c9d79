// Machines that this one is not, as hwloc describes them: which cores lanes are pinned to, and
// whether threads that wait for each other poll.
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/gate.h"
#include "sys/topology.h"
#include "tests/sys/temporary_directory.h"

namespace lockstep::sys {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

constexpr const char* kTwoSockets = "pack:2 [numa] core:16 pu:1";
constexpr const char* kTwoSocketsSmt = "pack:2 [numa] core:16 pu:2";
constexpr const char* kSmt = "pack:1 [numa] core:4 pu:2";
constexpr const char* kOneCore = "pack:1 [numa] core:1 pu:1";

/// A machine with the quota of the test, not of this process.
Topology machine(const char* description, double quota = kUnlimited) {
  EXPECT_EQ(setenv("HWLOC_SYNTHETIC", description, 1), 0);
  const Topology read = Topology::read();
  EXPECT_EQ(unsetenv("HWLOC_SYNTHETIC"), 0);
  return {read.nodes(), quota};
}

int processors(const Topology& topology) {
  std::size_t count = 0;
  for (const NumaNode& node : topology.nodes()) {
    for (const CpuSet& core : node.cores) count += core.size();
  }
  return static_cast<int>(count);
}

CpuSet from_to(int first, int last) {
  CpuSet cpus;
  for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  return cpus;
}

/// Whether so many threads keep their processors while they wait for each other.
bool polls(int threads, const Topology& topology, double quota = kUnlimited) {
  const int usable = usable_processors(processors(topology), quota);
  const SpinPolicy short_waits = SpinPolicy::for_threads(threads, usable);
  const SpinPolicy long_waits = SpinPolicy::for_computing_threads(threads, usable);
  EXPECT_EQ(short_waits.eager > 0, long_waits.idle_yields > 0);
  EXPECT_GT(short_waits.yields, 0);  // in any case the core is offered before the thread sleeps
  return short_waits.eager > 0;
}

/// A cgroup of version 2 that allows 1.5 cores' worth of time.
double quota_of_one_and_a_half() {
  const TemporaryDirectory root;
  std::filesystem::create_directories(root.path() + "/job");
  std::ofstream(root.path() + "/job/cpu.max") << "150000 100000\n";
  return cpu_quota("0::/job\n", root.path());
}

TEST(EmulatedMachines, TwoSocketsOfSixteenCores) {
  const Topology there = machine(kTwoSockets);
  EXPECT_EQ(there.numa_nodes(), 2);
  EXPECT_EQ(there.usable_cores(), 32);
  EXPECT_EQ(processors(there), 32);
  // OMP_NUM_THREADS=16: a lane has a socket; OMP_NUM_THREADS=8: half of one.
  EXPECT_THAT(there.cores_for({.lanes = 2, .threads = 16}),
              ElementsAre(from_to(0, 15), from_to(16, 31)));
  EXPECT_THAT(there.cores_for({.lanes = 3, .threads = 16}), IsEmpty());
  EXPECT_THAT(there.cores_for({.lanes = 4, .threads = 8}),
              ElementsAre(from_to(0, 7), from_to(8, 15), from_to(16, 23), from_to(24, 31)));
  // Four ranks of one lane, and one rank too many.
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(there.cores_for({.lanes = 1, .threads = 8, .before = 8 * rank}),
                ElementsAre(from_to(8 * rank, 8 * rank + 7)));
  }
  EXPECT_THAT(there.cores_for({.lanes = 1, .threads = 8, .before = 32}), IsEmpty());
  EXPECT_TRUE(polls(32, there));
  EXPECT_FALSE(polls(33, there));
}

TEST(EmulatedMachines, HardwareThreadsStayTogether) {
  const Topology there = machine(kSmt);
  EXPECT_EQ(there.usable_cores(), 4);
  EXPECT_EQ(processors(there), 8);
  EXPECT_THAT(there.cores_for({.lanes = 2, .threads = 2}),
              ElementsAre(from_to(0, 3), from_to(4, 7)));
  EXPECT_THAT(there.cores_for({.lanes = 1, .threads = 8}), IsEmpty());  // there are four cores
  // A thread that polls leaves the other hardware thread of its core time.
  EXPECT_TRUE(polls(8, there));
  EXPECT_FALSE(polls(9, there));
  const Topology large = machine(kTwoSocketsSmt);
  EXPECT_EQ(large.usable_cores(), 32);
  EXPECT_THAT(large.cores_for({.lanes = 2, .threads = 16}),
              ElementsAre(from_to(0, 31), from_to(32, 63)));
}

TEST(EmulatedMachines, OneCore) {
  const Topology there = machine(kOneCore);
  EXPECT_EQ(there.usable_cores(), 1);
  EXPECT_THAT(there.cores_for({.lanes = 1}), ElementsAre(CpuSet{0}));
  EXPECT_THAT(there.cores_for({.lanes = 2}), IsEmpty());
  EXPECT_THAT(there.cores_for({.lanes = 1, .before = 1}), IsEmpty());
  EXPECT_THAT(there.cores_for({.lanes = 1, .threads = 8}), IsEmpty());
  EXPECT_TRUE(polls(1, there));
  EXPECT_FALSE(polls(2, there));
}

TEST(EmulatedMachines, AQuotaOfOneAndAHalfCores) {
  const double quota = quota_of_one_and_a_half();
  EXPECT_EQ(quota, 1.5);
  const Topology there = machine(kTwoSockets, quota);
  EXPECT_EQ(there.usable_cores(), 1);
  EXPECT_THAT(there.cores_for({.lanes = 1}), SizeIs(1));
  EXPECT_THAT(there.cores_for({.lanes = 2}), IsEmpty());
  EXPECT_THAT(there.cores_for({.lanes = 1, .threads = 8}), IsEmpty());
  EXPECT_TRUE(polls(1, there, quota));
  // The mask has 32 processors, but two threads that poll use up the time of both.
  EXPECT_FALSE(polls(2, there, quota));
  EXPECT_TRUE(polls(2, there, 2));
  EXPECT_FALSE(polls(2, there, 0.5));
}

TEST(EmulatedMachines, TheQuotaOfThisProcessCounts) {
  EXPECT_EQ(usable_processors(), usable_processors(lockstep::usable_cores(), own_cpu_quota()));
  EXPECT_GE(usable_processors(), 1);
  EXPECT_LE(usable_processors(), lockstep::usable_cores());
}

}  // namespace
}  // namespace lockstep::sys
