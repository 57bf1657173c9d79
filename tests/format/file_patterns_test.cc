#include "format/file_patterns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "lockstep/error.h"
#include "tests/format/files.h"

namespace lockstep::format {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class FilePatterns : public testing::Test {
 protected:
  void make(const std::vector<std::string>& names) {
    for (const std::string& name : names) write_file(path(name), "");
  }
  [[nodiscard]] std::string path(const std::string& name) const {
    return directory_.path() + "/" + name;
  }
  void expect_not_found(const std::string& pattern, const std::string& named) {
    try {
      expand_file_pattern(pattern);
      ADD_FAILURE() << "no error";
    } catch (const SystemError& error) {
      EXPECT_EQ(error.code(), Code::not_found);
      EXPECT_THAT(error.what(), HasSubstr(named));
    }
  }
  TemporaryDirectory directory_;
};

TEST_F(FilePatterns, ExpandAsInAShellSorted) {
  make({"train-2", "train-10", "train-1", "test-1"});
  std::filesystem::create_directory(path("train-directory"));
  EXPECT_THAT(expand_file_pattern(path("train-*")),
              ElementsAre(path("train-1"), path("train-10"), path("train-2")));
  EXPECT_THAT(expand_file_pattern(path("t??t-[0-9]")), ElementsAre(path("test-1")));
}

TEST_F(FilePatterns, AShardedNameIsAllItsFiles) {
  make({"a-00000-of-00003", "a-00001-of-00003", "a-00002-of-00003", "a-00003-of-00004"});
  EXPECT_THAT(
      expand_file_pattern(path("a@3")),
      ElementsAre(path("a-00000-of-00003"), path("a-00001-of-00003"), path("a-00002-of-00003")));
  expect_not_found(path("a@4"), path("a-00000-of-00004"));
}

TEST_F(FilePatterns, AFileThatExistsIsItself) {
  make({"a@3", "b[1]", "c"});
  for (const char* name : {"a@3", "b[1]", "c"}) {
    EXPECT_THAT(expand_file_pattern(path(name)), ElementsAre(path(name)));
  }
}

TEST_F(FilePatterns, WhatMatchesNothingIsNotFoundByName) {
  expect_not_found(path("train-*"), "no file matches " + path("train-*"));
  for (const char* name : {"c", "c@0", "c@x", "c@", "c@99999999999", "@", ""}) {
    expect_not_found(path(name), path(name));
  }
}

TEST_F(FilePatterns, SeveralGiveOneSortedListWithoutDoubles) {
  make({"a", "b", "c"});
  const std::vector<std::string> patterns = {path("c"), path("[ab]"), path("*")};
  EXPECT_THAT(expand_file_patterns(patterns), ElementsAre(path("a"), path("b"), path("c")));
}

}  // namespace
}  // namespace lockstep::format
