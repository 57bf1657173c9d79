// What only a simulated disk does: crashes and failures on demand.
#include "sim/disk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>
#include <string_view>

#include "lockstep/error.h"

namespace lockstep::sim {
namespace {

using sys::File;
using testing::ElementsAre;
using testing::HasSubstr;
using Open = sys::Disk::Open;
using Operation = Disk::Operation;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// A disk with an empty directory /d.
struct Rig {
  explicit Rig(std::uint64_t seed = 1) : world(seed), disk(world) {
    disk.make_directory("/d");
    disk.sync_directory("/");
  }

  std::string get(const std::string& path) {
    auto file = disk.open(path, Open::read);
    std::string text(file->size(), '\0');
    sys::read_all(*file, 0, std::as_writable_bytes(std::span(text)));
    return text;
  }

  World world;
  Disk disk;
};

TEST(SimDisk, ACrashKeepsWhatWasSynced) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Rig on(seed);
    auto file = on.disk.open("/d/a", Open::create);
    sys::write_all(*file, 0, bytes_of("safe"));
    file->sync();
    on.disk.sync_directory("/d");
    on.disk.crash();
    EXPECT_EQ(on.get("/d/a"), "safe") << seed;
  }
}

TEST(SimDisk, ACrashKeepsOrLosesWritesBySeed) {
  std::set<std::string> found;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Rig on(seed);
    auto file = on.disk.open("/d/a", Open::create);
    sys::write_all(*file, 0, bytes_of("aaaa"));
    file->sync();
    on.disk.sync_directory("/d");
    sys::write_all(*file, 0, bytes_of("bb"));
    sys::write_all(*file, 2, bytes_of("cc"));
    EXPECT_EQ(on.get("/d/a"), "bbcc");
    on.disk.crash();
    found.insert(on.get("/d/a"));
  }
  EXPECT_THAT(found, ElementsAre("aaaa", "aacc", "bbaa", "bbcc"));
}

TEST(SimDisk, ACrashTearsLargeWritesAtSectors) {
  std::set<std::size_t> sizes;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Rig on(seed);
    auto file = on.disk.open("/d/a", Open::create);
    file->sync();
    on.disk.sync_directory("/d");
    sys::write_all(*file, 0, bytes_of(std::string(1500, 'x')));
    on.disk.crash();
    sizes.insert(on.get("/d/a").size());
  }
  EXPECT_THAT(sizes, ElementsAre(0U, 512U, 1024U, 1500U));
}

TEST(SimDisk, NamesAreLostInReverseOrderOnly) {
  std::set<std::vector<std::string>> found;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Rig on(seed);
    on.disk.open("/d/a", Open::create);
    on.disk.rename("/d/a", "/d/b");
    on.disk.open("/d/c", Open::create);
    on.disk.crash();
    found.insert(on.disk.list("/d"));
  }
  EXPECT_THAT(found,
              ElementsAre(std::vector<std::string>{}, std::vector<std::string>{"a"},
                          std::vector<std::string>{"b"}, std::vector<std::string>{"b", "c"}));
}

/// The careful order of sys/disk.h: before, or whole.
TEST(SimDisk, ACarefulReplacementIsWholeAtEveryCrash) {
  int before = 0;
  int after = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Rig on(seed);
    const auto save = [&](std::string_view text, int steps) {
      auto file = on.disk.open("/d/m.tmp", Open::replace);
      if (steps-- == 0) return;
      sys::write_all(*file, 0, bytes_of(text));
      if (steps-- == 0) return;
      file->sync();
      file->close();
      if (steps-- == 0) return;
      on.disk.rename("/d/m.tmp", "/d/m");
      if (steps-- == 0) return;
      on.disk.sync_directory("/d");
    };
    save("old", 5);
    const int steps = static_cast<int>(seed % 5);
    save("new", steps);
    on.disk.crash();
    const std::string got = on.get("/d/m");
    ASSERT_TRUE(got == "old" || got == "new") << seed << ": " << got;
    if (steps < 3) {
      EXPECT_EQ(got, "old");
    }
    if (steps > 3) {
      EXPECT_EQ(got, "new");
    }
    ++(got == "old" ? before : after);
  }
  EXPECT_GT(before, 100);
  EXPECT_GT(after, 40);
}

/// The careless one, which must be seen to fail.
TEST(SimDisk, ARenameWithoutSyncMayLeaveAnEmptyFile) {
  int empty = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Rig on(seed);
    auto file = on.disk.open("/d/m.tmp", Open::replace);
    sys::write_all(*file, 0, bytes_of("text"));
    on.disk.rename("/d/m.tmp", "/d/m");
    on.disk.sync_directory("/d");
    on.disk.crash();
    empty += on.get("/d/m").empty() ? 1 : 0;
  }
  EXPECT_GT(empty, 5);
}

TEST(SimDisk, OpenFilesDoNotSurviveACrash) {
  Rig on;
  auto file = on.disk.open("/d/a", Open::create);
  on.disk.crash();
  EXPECT_THROW(sys::write_all(*file, 0, bytes_of("x")), SystemError);
  EXPECT_THROW(file->sync(), SystemError);
}

TEST(SimDisk, AFullDiskTakesWhatFitsThenRefuses) {
  Rig on;
  on.disk.set_capacity(10);
  auto file = on.disk.open("/d/a", Open::create);
  EXPECT_EQ(on.disk.free_bytes("/d"), 10U);
  EXPECT_EQ(file->write(0, bytes_of("123456789012345")), 10U);
  EXPECT_EQ(on.disk.free_bytes("/d"), 0U);
  try {
    file->write(10, bytes_of("x"));
    FAIL();
  } catch (const SystemError& e) {
    EXPECT_EQ(e.code(), Code::resource_exhausted);
    EXPECT_THAT(e.what(), HasSubstr("cannot write /d/a: No space left on device (ENOSPC); free"));
  }
  EXPECT_EQ(file->write(0, bytes_of("overwrite")), 9U) << "takes no new space";
  on.disk.remove("/d/a");
  EXPECT_EQ(on.disk.free_bytes("/d"), 10U);
}

TEST(SimDisk, AnyOperationFailsOnDemandOnce) {
  Rig on;
  auto file = on.disk.open("/d/a", Open::create);
  on.disk.fail_next({.operation = Operation::write, .error = EIO, .after = 2});
  file->write(0, bytes_of("1"));
  file->write(1, bytes_of("2"));
  EXPECT_THROW(file->write(2, bytes_of("3")), SystemError);
  file->write(2, bytes_of("3"));
  EXPECT_EQ(on.get("/d/a"), "123");
  std::byte some[1];
  on.disk.fail_next({.operation = Operation::read, .error = EIO});
  EXPECT_THROW(file->read(0, some), SystemError);
  on.disk.fail_next({.operation = Operation::open, .error = EMFILE});
  EXPECT_THROW(on.disk.open("/d/b", Open::create), SystemError);
  on.disk.fail_next({.operation = Operation::rename, .error = EIO});
  EXPECT_THROW(on.disk.rename("/d/a", "/d/b"), SystemError);
  on.disk.fail_next({.operation = Operation::sync_directory, .error = EIO});
  EXPECT_THROW(on.disk.sync_directory("/d"), SystemError);
  on.disk.fail_next({.operation = Operation::close, .error = EDQUOT});
  EXPECT_THROW(file->close(), SystemError);
  EXPECT_THAT(on.disk.list("/d"), ElementsAre("a")) << "what failed did nothing";
}

TEST(SimDisk, AFailedSyncLosesItsWritesEvenIfTheNextSucceeds) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Rig on(seed);
    auto file = on.disk.open("/d/a", Open::create);
    on.disk.sync_directory("/d");
    sys::write_all(*file, 0, bytes_of("lost"));
    on.disk.fail_next({.operation = Operation::sync, .error = EIO});
    EXPECT_THROW(file->sync(), SystemError);
    file->sync();
    EXPECT_EQ(on.get("/d/a"), "lost") << "still seen";
    on.disk.crash();
    EXPECT_EQ(on.get("/d/a"), "");
  }
}

TEST(SimDisk, ShortTransfersAreReallyShort) {
  World world(1);
  Disk narrow(world, {.short_transfers = true});
  auto file = narrow.open("/a", Open::create);
  std::set<std::size_t> sizes;
  for (int i = 0; i < 100; ++i) sizes.insert(file->write(0, bytes_of("1234")));
  EXPECT_THAT(sizes, ElementsAre(1U, 2U, 3U, 4U));
}

}  // namespace
}  // namespace lockstep::sim
