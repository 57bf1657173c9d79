// Memory that processes share, where it is short.
#include "sys/segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "lockstep/error.h"
#include "tests/sys/temporary_directory.h"

namespace lockstep::sys {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kTiB = std::size_t{1} << 40;

/// What the system says of its memory, as files.
class FreeMemory : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = directory_.path() + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  [[nodiscard]] std::size_t found() const {
    return free_memory(directory_.path() + "/meminfo", directory_.path() + "/cgroup",
                       directory_.path() + "/mount");
  }
  TemporaryDirectory directory_;
};

TEST_F(FreeMemory, IsWhatTheMachineHas) {
  write("meminfo", "MemTotal: 9000 kB\nMemFree: 1000 kB\nMemAvailable: 4096 kB\n");
  EXPECT_EQ(found(), 4 * kMiB);
}

TEST_F(FreeMemory, IsUnlimitedWhereNothingIsSaid) { EXPECT_EQ(found(), SIZE_MAX); }

TEST_F(FreeMemory, IsWhatTheGroupAndThoseAboveItLeave) {
  write("meminfo", "MemAvailable: 1048576 kB\n");
  write("cgroup", "0::/pod/container\n");
  write("mount/pod/memory.max", std::to_string(64 * kMiB));
  write("mount/pod/memory.current", std::to_string(60 * kMiB));
  write("mount/pod/container/memory.max", "max\n");
  EXPECT_EQ(found(), 4 * kMiB);
  // Files that were read give way.
  write("mount/pod/memory.stat", "anon 5\ninactive_file 1048576\nactive_file 1048576\n");
  EXPECT_EQ(found(), 6 * kMiB);
  write("mount/pod/container/memory.max", std::to_string(3 * kMiB));
  write("mount/pod/container/memory.current", std::to_string(1 * kMiB));
  EXPECT_EQ(found(), 2 * kMiB);
}

TEST_F(FreeMemory, KnowsTheFirstVersionOfGroups) {
  write("meminfo", "MemAvailable: 1048576 kB\n");
  write("cgroup", "4:memory:/job\n2:cpu,cpuacct:/\n");
  write("mount/memory/job/memory.limit_in_bytes", std::to_string(64 * kMiB));
  write("mount/memory/job/memory.usage_in_bytes", std::to_string(80 * kMiB));
  EXPECT_EQ(found(), 0U);
  write("mount/memory/job/memory.stat", "total_inactive_file 33554432\n");
  EXPECT_EQ(found(), 16 * kMiB);
}

TEST(Segment, MoreThanThereIsIsRefusedWithBothNumbers) {
  // No more room than that: a sanitizer leaves a process little.
  const std::size_t too_much = (free_memory() / kMiB + 4096) * kMiB;
  Segment segment = Segment::create("lockstep", too_much);
  const Status status = segment.commit(0, too_much);
  EXPECT_EQ(status.kind(), ErrorKind::system_error);
  EXPECT_EQ(status.code(), Code::resource_exhausted);
  EXPECT_THAT(
      status.message(),
      AllOf(HasSubstr(fmt::format("cannot have {}.0 MiB of shared memory", too_much / kMiB)),
            HasSubstr("MiB are free here; raise the memory limit of the container")));
  EXPECT_TRUE(segment.commit(0, kMiB).ok()) << "what there is can still be had";
}

/// Bytes of memory that a segment holds.
std::size_t held_by(const Segment& segment) {
  struct stat file {};
  EXPECT_EQ(::fstat(segment.descriptor(), &file), 0);
  return static_cast<std::size_t>(file.st_blocks) * 512;
}

/// Bytes of this process's segments that are mapped as huge pages.
std::size_t mapped_huge() {
  std::ifstream maps("/proc/self/smaps");
  std::size_t kib = 0;
  for (std::string word; maps >> word;) {
    std::size_t value = 0;
    if (word == "ShmemPmdMapped:" && maps >> value) kib += value;
  }
  return kib * 1024;
}

TEST(Segment, HasNoMoreThanWasCommitted) {
  Segment segment = Segment::create("lockstep", 64 * kMiB);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(segment.data()) % (2 * kMiB), 0U);
  ASSERT_TRUE(segment.commit(kMiB, 6 * kMiB + 4096).ok());  // parts of huge pages at both ends
  EXPECT_EQ(held_by(segment), 6 * kMiB + 4096);
  std::memset(segment.data() + kMiB, 7, 6 * kMiB + 4096);
  ASSERT_TRUE(segment.commit(kMiB, 7 * kMiB).ok());
  EXPECT_EQ(held_by(segment), 7 * kMiB);
  const auto has = [&](std::size_t from, std::size_t to, int value) {
    return std::all_of(segment.data() + from, segment.data() + to,
                       [&](std::byte byte) { return byte == std::byte(value); });
  };
  EXPECT_TRUE(has(kMiB, 7 * kMiB + 4096, 7)) << "what it held is as it was";
  EXPECT_TRUE(has(7 * kMiB + 4096, 8 * kMiB, 0));
  segment.release(3 * kMiB, kMiB);  // half of a huge page
  EXPECT_EQ(held_by(segment), 6 * kMiB);
  EXPECT_TRUE(has(kMiB, 3 * kMiB, 7) && has(4 * kMiB, 7 * kMiB, 7));
}

/// Whether the system gives shared memory huge pages now: Linux before 6.1 does not, nor one whose
/// free memory is in small pieces.
bool has_huge_pages() {
  const Segment segment = Segment::create("probe", 64 * kMiB);
  const bool has_memory = ::fallocate(segment.descriptor(), 0, 0, 8 * kMiB) == 0;
  constexpr int kCollapse = 25;  // MADV_COLLAPSE
  return has_memory && ::madvise(segment.data(), 8 * kMiB, kCollapse) == 0;
}

TEST(Segment, LiesInHugePagesWhereTheSystemHasThem) {
  const bool expected = has_huge_pages();
  Segment segment = Segment::create("lockstep", 64 * kMiB);
  ASSERT_TRUE(segment.commit(0, 8 * kMiB).ok());
  std::memset(segment.data(), 1, 8 * kMiB);  // also where there are none: nobody is ended
  EXPECT_GE(mapped_huge(), expected ? 8 * kMiB : 0);
  EXPECT_EQ(held_by(segment), 8 * kMiB);
}

TEST(Segment, CountsWhatOthersAreAboutToTake) {
  Segment segment = Segment::create("lockstep", 256 * kMiB);
  std::vector<std::size_t> told;
  ASSERT_TRUE(segment
                  .commit(kMiB, 130 * kMiB,
                          [&](std::size_t left) {
                            told.push_back(left);
                            return std::size_t{0};
                          })
                  .ok());
  // What it has got already is not claimed any more.
  EXPECT_THAT(told, ElementsAre(130 * kMiB, 67 * kMiB, 3 * kMiB, 0));
  EXPECT_EQ(held_by(segment), 130 * kMiB);
  told.clear();
  const Status refused = segment.commit(0, kMiB, [&](std::size_t left) {
    told.push_back(left);
    return free_memory();
  });
  EXPECT_EQ(refused.code(), Code::resource_exhausted);
  EXPECT_THAT(refused.message(), HasSubstr("other ranks of this host are taking"));
  EXPECT_THAT(told, ElementsAre(kMiB, 0));
}

/// D28: without a look at the limit first, SIGXFSZ would end this test.
TEST(Segment, ALimitOfFileSizesIsNamed) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit little{.rlim_cur = 1'024'000, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
  std::string said;
  try {
    (void)Segment::create("lockstep", kTiB);
  } catch (const SystemError& error) {
    EXPECT_EQ(error.code(), Code::resource_exhausted);
    said = error.what();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(said, AllOf(HasSubstr("1048576 MiB of room for shared memory"),
                          HasSubstr("(ulimit -f): it is 1024000 bytes")));
}

}  // namespace
}  // namespace lockstep::sys
