#include "sys/topology.h"

#include <gmock/gmock.h>
#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

#include "tests/sys/temporary_directory.h"

namespace lockstep::sys {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

CpuSet mask_of_this_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  CpuSet cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

// Two nodes of two cores, two hardware threads each.
Topology eight(double quota = kUnlimited) {
  return {{{{{0, 4}, {1, 5}}}, {{{2, 6}, {3, 7}}}}, quota};
}

TEST(Topology, OneCoreForEachLane) {
  EXPECT_THAT(eight().cores_for({.lanes = 2, .before = 0}),
              ElementsAre(CpuSet{0, 4}, CpuSet{1, 5}));
  EXPECT_THAT(eight().cores_for({.lanes = 1, .before = 2}), ElementsAre(CpuSet{2, 6}));
  EXPECT_THAT(eight().cores_for({.lanes = 2, .before = 2}),
              ElementsAre(CpuSet{2, 6}, CpuSet{3, 7}));
  EXPECT_EQ(eight().numa_nodes(), 2);
  EXPECT_EQ(eight().usable_cores(), 4);
}

TEST(Topology, AsManyCoresAsALaneHasThreads) {
  EXPECT_THAT(eight().cores_for({.lanes = 2, .threads = 2}),
              ElementsAre(CpuSet{0, 1, 4, 5}, CpuSet{2, 3, 6, 7}));
  EXPECT_THAT(eight().cores_for({.lanes = 1, .threads = 2, .before = 1}),
              ElementsAre(CpuSet{1, 2, 5, 6}));
  EXPECT_THAT(eight().cores_for({.lanes = 1, .threads = 4}),
              ElementsAre(CpuSet{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_THAT(eight().cores_for({.lanes = 2, .threads = 3}), IsEmpty());
  EXPECT_THAT(eight(3).cores_for({.lanes = 2, .threads = 2}), IsEmpty());
  EXPECT_THAT(eight().cores_for({.lanes = std::numeric_limits<int>::max(),
                                 .threads = std::numeric_limits<int>::max()}),
              IsEmpty());
}

// The machine as hwloc describes it, here one of 64 cores with two hardware threads each. The quota
// of this process may be small: the cores are checked with quotas of the test.
TEST(Topology, OfALargerMachine) {
  ASSERT_EQ(setenv("HWLOC_SYNTHETIC", "numa:2 core:32 pu:2", 1), 0);
  const Topology here = Topology::read();
  ASSERT_EQ(unsetenv("HWLOC_SYNTHETIC"), 0);
  std::ostringstream memberships;
  memberships << std::ifstream("/proc/self/cgroup").rdbuf();
  const double quota = cpu_quota(memberships.str());
  EXPECT_EQ(here.usable_cores(), std::max(static_cast<int>(std::min(quota, 64.0)), 1));

  const LaneCores wanted = {.lanes = 3, .threads = 8, .before = 8};  // 32 cores in all
  EXPECT_THAT(Topology(here.nodes(), 31.5).cores_for(wanted), IsEmpty());
  EXPECT_EQ(Topology(here.nodes(), 32).cores_for(wanted).size(), 3U);

  const Topology large(here.nodes(), kUnlimited);
  EXPECT_EQ(large.numa_nodes(), 2);
  EXPECT_EQ(large.usable_cores(), 64);
  const auto lanes = large.cores_for(wanted);
  ASSERT_EQ(lanes.size(), 3U);
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    ASSERT_EQ(lanes[i].size(), 16U);
    EXPECT_EQ(lanes[i].front(), 16 * (static_cast<int>(i) + 1));
    EXPECT_EQ(lanes[i].back(), lanes[i].front() + 15);
  }
}

TEST(Topology, NothingWhenOversubscribed) {
  EXPECT_THAT(eight().cores_for({.lanes = 5, .before = 0}), IsEmpty());
  EXPECT_THAT(eight().cores_for({.lanes = 2, .before = 3}), IsEmpty());
  EXPECT_THAT(eight().cores_for({.before = std::numeric_limits<int>::max()}), IsEmpty());
  EXPECT_THAT(eight().cores_for({.lanes = 0, .before = 0}), IsEmpty());
  EXPECT_EQ(eight().cores_for({.lanes = 4, .before = 0}).size(), 4U);
}

TEST(Topology, AQuotaCountsAsCores) {
  EXPECT_EQ(eight(2.5).usable_cores(), 2);
  EXPECT_EQ(eight(2.5).cores_for({.lanes = 2, .before = 0}).size(), 2U);
  EXPECT_THAT(eight(2.5).cores_for({.lanes = 3, .before = 0}), IsEmpty());
  EXPECT_THAT(eight(2.5).cores_for({.lanes = 1, .before = 2}), IsEmpty());
  EXPECT_EQ(eight(0.5).usable_cores(), 1);
  EXPECT_EQ(eight(100).usable_cores(), 4);
}

TEST(Topology, OfThisProcess) {
  const CpuSet mask = mask_of_this_thread();
  const Topology topology = Topology::read();
  ASSERT_GE(topology.numa_nodes(), 1);
  CpuSet all;
  for (const NumaNode& node : topology.nodes()) {
    EXPECT_FALSE(node.cores.empty());
    for (const CpuSet& core : node.cores) all.insert(all.end(), core.begin(), core.end());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, mask);
}

TEST(Topology, StaysInsideANarrowMask) {
  const CpuSet mask = mask_of_this_thread();
  const CpuSet narrow = {mask.back()};
  ASSERT_TRUE(pin_this_thread(narrow).ok());
  const Topology topology = Topology::read();
  const auto cores = topology.cores_for({.lanes = 1, .before = 0});
  const auto too_many = topology.cores_for({.lanes = 2, .before = 0});
  ASSERT_TRUE(pin_this_thread(mask).ok());
  EXPECT_THAT(cores, ElementsAre(narrow));
  EXPECT_THAT(too_many, IsEmpty());
  EXPECT_EQ(topology.usable_cores(), 1);
  EXPECT_EQ(topology.numa_nodes(), 1);
}

TEST(Topology, PinsOneThreadOnly) {
  const CpuSet mask = mask_of_this_thread();
  const int cores = Topology::read().usable_cores();
  CpuSet pinned;
  std::jthread([&] {
    EXPECT_TRUE(pin_this_thread({mask.front()}).ok());
    pinned = mask_of_this_thread();
    // The mask of the process is the union of its threads': a pinned lane does not narrow it.
    EXPECT_EQ(Topology::read().usable_cores(), cores);
  }).join();
  EXPECT_THAT(pinned, ElementsAre(mask.front()));
  EXPECT_EQ(mask_of_this_thread(), mask);
}

TEST(Topology, SaysWhatItCouldNotPinTo) {
  const Status status = pin_this_thread({1000});
  EXPECT_EQ(status.kind(), ErrorKind::system_error);
  EXPECT_THAT(status.message(), testing::HasSubstr("cannot pin a thread to processors [1000]"));
  EXPECT_FALSE(pin_this_thread({}).ok());
}

class Quota : public testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) {
    const auto path = std::filesystem::path(root_.path()) / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  [[nodiscard]] double quota(const std::string& memberships) const {
    return cpu_quota(memberships, root_.path());
  }

 private:
  TemporaryDirectory root_;
};

TEST_F(Quota, NoneIsUnlimited) {
  EXPECT_EQ(quota(""), kUnlimited);
  EXPECT_EQ(quota("0::/a\nnonsense\n1:cpu:/b\n"), kUnlimited);
  write("cpu.max", "max 100000\n");
  EXPECT_EQ(quota("0::/\n"), kUnlimited);
  write("cpu/cpu.cfs_quota_us", "-1\n");
  write("cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota("1:cpu:/\n"), kUnlimited);
}

TEST_F(Quota, VersionTwoTakesTheTightestLevel) {
  write("a/cpu.max", "250000 100000\n");
  write("a/b/cpu.max", "400000 100000\n");
  EXPECT_EQ(quota("0::/a/b\n"), 2.5);
  write("a/b/cpu.max", "100000 100000\n");
  EXPECT_EQ(quota("0::/a/b\n"), 1);
  // A container sees its own group at the mount point, whatever its path is called outside.
  write("cpu.max", "50000 100000\n");
  EXPECT_EQ(quota("0::/elsewhere\n"), 0.5);
}

TEST_F(Quota, VersionOne) {
  write("cpu,cpuacct/job/cpu.cfs_quota_us", "300000\n");
  write("cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota("4:memory:/x\n3:cpu,cpuacct:/job\n0::/\n"), 3);
  EXPECT_EQ(quota("3:cpuset,cpuacct:/job\n"), kUnlimited);
}

}  // namespace
}  // namespace lockstep::sys
