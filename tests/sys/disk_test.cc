// What every implementation of sys::Disk does, real or simulated.
#include "sys/disk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>

#include "lockstep/error.h"
#include "sim/disk.h"
#include "sys/posix_disk.h"
#include "tests/sys/temporary_directory.h"

namespace lockstep::sys {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Open = Disk::Open;

class Bench {
 public:
  virtual ~Bench() = default;
  virtual Disk& disk() = 0;
  virtual std::string directory() = 0;  // fresh
};

class PosixBench final : public Bench {
 public:
  Disk& disk() override { return disk_; }
  std::string directory() override { return directory_.path(); }

 private:
  PosixDisk disk_;
  TemporaryDirectory directory_;
};

class SimBench final : public Bench {
 public:
  explicit SimBench(sim::DiskOptions options) : world_(5), disk_(world_, options) {
    disk_.make_directory("/data");
  }
  Disk& disk() override { return disk_; }
  std::string directory() override { return "/data"; }

 private:
  sim::World world_;
  sim::Disk disk_;
};

struct Variant {
  std::string name;
  std::function<std::unique_ptr<Bench>()> make;
};

class DiskTest : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    bench_ = GetParam().make();
    root_ = bench_->directory();
  }
  Disk& disk() { return bench_->disk(); }
  std::string at(const std::string& name) { return root_ + "/" + name; }

  void put(const std::string& name, std::string_view text) {
    auto file = disk().open(at(name), Open::replace);
    write_all(*file, 0, std::as_bytes(std::span(text.data(), text.size())));
    file->sync();
    file->close();
  }
  std::string get(const std::string& name) {
    auto file = disk().open(at(name), Open::read);
    std::string text(file->size(), '\0');
    read_all(*file, 0, std::as_writable_bytes(std::span(text)));
    return text;
  }

  std::unique_ptr<Bench> bench_;
  std::string root_;
};

/// The code of the SystemError an action ends with; ok if none. It must name `path`.
Code code_of(const std::string& path, const std::function<void()>& action) {
  try {
    action();
  } catch (const SystemError& e) {
    EXPECT_THAT(e.what(), HasSubstr(path));
    return e.code();
  }
  return Code::ok;
}

TEST_P(DiskTest, WhatIsWrittenIsRead) {
  put("a", "hello");
  EXPECT_EQ(get("a"), "hello");
  EXPECT_EQ(disk().open(at("a"), Open::read)->path(), at("a"));
}

TEST_P(DiskTest, WritesGoToTheirOffset) {
  put("a", "0123456789");
  auto file = disk().open(at("a"), Open::update);
  write_all(*file, 3, std::as_bytes(std::span("xyz", 3)));
  write_all(*file, 12, std::as_bytes(std::span("end", 3)));
  EXPECT_EQ(file->size(), 15U);
  EXPECT_EQ(get("a"), std::string("012xyz6789\0\0end", 15)) << "a hole reads as zeros";
  EXPECT_EQ(file->write(0, {}), 0U);
}

TEST_P(DiskTest, ReadingPastTheEndGivesNothing) {
  put("a", "abc");
  auto file = disk().open(at("a"), Open::read);
  std::byte some[8];
  EXPECT_EQ(file->read(3, some), 0U);
  EXPECT_EQ(file->read(1000, some), 0U);
  try {
    read_all(*file, 1, some);
    FAIL();
  } catch (const DataError& e) {
    EXPECT_THAT(e.what(),
                HasSubstr(at("a") + " ends at byte 3, 8 bytes were expected from byte 1"));
  }
}

TEST_P(DiskTest, OpenModes) {
  EXPECT_EQ(code_of(at("a"), [&] { disk().open(at("a"), Open::read); }), Code::not_found);
  EXPECT_EQ(code_of(at("a"), [&] { disk().open(at("a"), Open::update); }), Code::not_found);
  disk().open(at("a"), Open::create);
  EXPECT_EQ(code_of(at("a"), [&] { disk().open(at("a"), Open::create); }), Code::already_exists);
  put("a", "long text");
  put("a", "short");
  EXPECT_EQ(get("a"), "short") << "replaced, not overwritten";
  disk().open(at("a"), Open::update);
  EXPECT_EQ(get("a"), "short");
  const std::byte some[1] = {};
  EXPECT_NE(code_of(at("a"), [&] { disk().open(at("a"), Open::read)->write(0, some); }), Code::ok);
  EXPECT_EQ(code_of(root_, [&] { disk().open(root_, Open::replace); }), Code::failed_precondition);
  EXPECT_EQ(code_of("none/a", [&] { disk().open(at("none/a"), Open::create); }), Code::not_found);
  EXPECT_EQ(code_of("a/b", [&] { disk().open(at("a/b"), Open::create); }),
            Code::failed_precondition);
}

TEST_P(DiskTest, AClosedFileIsClosed) {
  put("a", "abc");
  auto file = disk().open(at("a"), Open::update);
  file->close();
  std::byte some[1] = {};
  EXPECT_NE(code_of(at("a"), [&] { file->read(0, some); }), Code::ok);
  EXPECT_NE(code_of(at("a"), [&] { file->write(0, some); }), Code::ok);
  EXPECT_NE(code_of(at("a"), [&] { file->sync(); }), Code::ok);
}

TEST_P(DiskTest, RenameReplaces) {
  put("a", "new");
  put("b", "old");
  disk().rename(at("a"), at("b"));
  disk().sync_directory(root_);
  EXPECT_EQ(get("b"), "new");
  EXPECT_THAT(disk().list(root_), ElementsAre("b"));
  disk().rename(at("b"), at("b"));
  EXPECT_EQ(get("b"), "new");
  EXPECT_EQ(code_of(at("a"), [&] { disk().rename(at("a"), at("c")); }), Code::not_found);
  EXPECT_EQ(code_of(at("b"), [&] { disk().rename(at("b"), at("none/c")); }), Code::not_found);
}

TEST_P(DiskTest, DirectoriesMoveWithTheirFiles) {
  disk().make_directory(at("step.tmp"));
  put("step.tmp/rank0", "zero");
  put("step.tmp/rank1", "one");
  put("step.tmpx", "not inside");
  disk().rename(at("step.tmp"), at("step"));
  EXPECT_THAT(disk().list(root_), ElementsAre("step", "step.tmpx"));
  EXPECT_THAT(disk().list(at("step")), ElementsAre("rank0", "rank1"));
  EXPECT_EQ(get("step/rank1"), "one");
  disk().make_directory(at("full"));
  put("full/x", "");
  EXPECT_EQ(code_of(at("full"), [&] { disk().rename(at("step"), at("full")); }),
            Code::failed_precondition);
}

TEST_P(DiskTest, RemoveTakesFilesAndEmptyDirectories) {
  disk().make_directory(at("d"));
  disk().make_directory(at("d"));
  put("d/a", "x");
  EXPECT_EQ(code_of(at("d"), [&] { disk().remove(at("d")); }), Code::failed_precondition);
  disk().remove(at("d/a"));
  disk().remove(at("d"));
  EXPECT_THAT(disk().list(root_), ElementsAre());
  EXPECT_EQ(code_of(at("d"), [&] { disk().remove(at("d")); }), Code::not_found);
  put("d", "a file");
  EXPECT_EQ(code_of(at("d"), [&] { disk().make_directory(at("d")); }), Code::already_exists);
}

TEST_P(DiskTest, ARemovedFileLivesWhileOpen) {
  put("a", "still here");
  auto file = disk().open(at("a"), Open::read);
  disk().remove(at("a"));
  std::string text(10, '\0');
  read_all(*file, 0, std::as_writable_bytes(std::span(text)));
  EXPECT_EQ(text, "still here");
}

TEST_P(DiskTest, ListIsSortedAndOfOneDirectory) {
  put("b", "");
  put("a", "");
  put(".hidden", "");
  disk().make_directory(at("c"));
  put("c/inside", "");
  EXPECT_THAT(disk().list(root_), ElementsAre(".hidden", "a", "b", "c"));
  EXPECT_EQ(code_of(at("none"), [&] { disk().list(at("none")); }), Code::not_found);
  EXPECT_EQ(code_of(at("a"), [&] { disk().list(at("a")); }), Code::failed_precondition);
  EXPECT_EQ(code_of(at("none"), [&] { disk().sync_directory(at("none")); }), Code::not_found);
}

TEST_P(DiskTest, FreeSpaceIsKnown) {
  EXPECT_GT(disk().free_bytes(root_), 0U);
  EXPECT_EQ(code_of(at("none"), [&] { disk().free_bytes(at("none")); }), Code::not_found);
}

INSTANTIATE_TEST_SUITE_P(
    All, DiskTest,
    testing::Values(Variant{"posix", [] { return std::make_unique<PosixBench>(); }},
                    Variant{"sim", [] { return std::make_unique<SimBench>(sim::DiskOptions{}); }},
                    Variant{"sim_short",
                            [] {
                              return std::make_unique<SimBench>(
                                  sim::DiskOptions{.short_transfers = true});
                            }}),
    [](const auto& variant) { return variant.param.name; });

}  // namespace
}  // namespace lockstep::sys
