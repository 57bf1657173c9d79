#include "launch/memory_kills.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/sys/temporary_directory.h"

namespace lockstep::tool {
namespace {

using testing::HasSubstr;

/// A made-up /proc and /sys.
class MemoryKillsTest : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = root_.path() + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  MemoryKills read() { return MemoryKills::read(root_.path()); }

  TemporaryDirectory root_;
};

TEST_F(MemoryKillsTest, Version2) {
  const std::string group = "/sys/fs/cgroup/job/7";
  write("/proc/self/cgroup", "0::/job/7\n");
  write(group + "/memory.events", "low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\noom_group_kill 0\n");
  write(group + "/memory.max", "536870912\n");
  write(group + "/memory.peak", "536866816\n");
  const MemoryKills before = read();
  EXPECT_EQ(before.of_group, 3U);
  EXPECT_THAT(read().explain_since(before), HasSubstr("not by the memory controller"));
  write(group + "/memory.events", "oom 5\noom_kill 4\n");
  EXPECT_EQ(read().explain_since(before),
            "killed by the memory controller: limit 512.0 MiB, peak 512.0 MiB");
  write(group + "/memory.max", "max\n");
  EXPECT_EQ(read().explain_since(before), "killed by the memory controller: peak 512.0 MiB");
}

TEST_F(MemoryKillsTest, Version1) {
  const std::string group = "/sys/fs/cgroup/memory/job";
  write("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/job\n0::/\n");
  write(group + "/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  write(group + "/memory.limit_in_bytes", "1073741824\n");
  const MemoryKills before = read();
  EXPECT_EQ(before.limit, std::uint64_t{1} << 30);
  write(group + "/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  EXPECT_EQ(read().explain_since(before), "killed by the memory controller: limit 1024.0 MiB");
  write(group + "/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(read().limit, std::nullopt);
}

TEST_F(MemoryKillsTest, InAContainerTheGroupIsTheMount) {
  write("/proc/self/cgroup", "0::/../../of/the/host\n");
  write("/sys/fs/cgroup/memory.events", "oom_kill 8\n");
  EXPECT_EQ(read().of_group, 8U);
}

TEST_F(MemoryKillsTest, TheMachineAndNothingAtAll) {
  const MemoryKills nothing = read();
  EXPECT_THAT(nothing.explain_since(nothing), HasSubstr("may be the cause"));
  write("/proc/vmstat", "nr_free_pages 12\noom_kill 5\n");
  const MemoryKills before = read();
  EXPECT_THAT(read().explain_since(before), HasSubstr("somebody sent it"));
  write("/proc/vmstat", "oom_kill 6\n");
  EXPECT_THAT(read().explain_since(before), HasSubstr("for want of memory"));
}

}  // namespace
}  // namespace lockstep::tool
