#include "launch/key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "lockstep/error.h"
#include "tests/sys/temporary_directory.h"
#include "usage_error.h"

namespace lockstep::tool {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& path) {
  try {
    check_key_file(path);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class KeyTest : public testing::Test {
 protected:
  TemporaryDirectory directory_;
  std::string path_ = directory_.path() + "/key";
};

TEST_F(KeyTest, ANewKeyIsPrivateGoodAndDifferent) {
  write_new_key(path_);
  struct stat about {};
  ASSERT_EQ(::stat(path_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0600U);
  EXPECT_EQ(refusal(path_), "");
  EXPECT_THROW(write_new_key(path_), SystemError) << "never over another";
  write_new_key(path_ + "2");
  EXPECT_NE(text_of(path_), text_of(path_ + "2"));
}

TEST_F(KeyTest, TheCommandOfTheMessageMakesAGoodKey) {
  ASSERT_EQ(std::system(("cd " + directory_.path() + " && " + kMakeKey).c_str()), 0);
  EXPECT_EQ(refusal(path_), "");
}

/// As ranks read it: what docs/security.md allows.
TEST_F(KeyTest, EveryFormOfAKeyIsTaken) {
  write_new_key(path_);
  const std::string raw = "\x01" + std::string(31, '\xfe');
  for (const std::string& content :
       {text_of(path_), std::string("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n"), raw}) {
    std::ofstream(path_) << content;
    EXPECT_EQ(refusal(path_), "");
  }
  ASSERT_EQ(::chmod(path_.c_str(), 0400), 0);
  EXPECT_EQ(refusal(path_), "");
}

TEST_F(KeyTest, WhatIsWrongIsSaid) {
  EXPECT_THAT(refusal(path_), HasSubstr("cannot open"));
  EXPECT_THAT(refusal(path_), HasSubstr("/dev/urandom"));
  EXPECT_THAT(refusal(directory_.path()), HasSubstr("is not a regular file"));
  write_new_key(path_);
  ASSERT_EQ(::symlink((path_ + "-link").c_str(), (path_ + "-link").c_str()), 0);
  EXPECT_THAT(refusal(path_ + "-link"), HasSubstr("symbolic link"));
  ASSERT_EQ(::chmod(path_.c_str(), 0640), 0);
  EXPECT_THAT(refusal(path_), HasSubstr("chmod 600"));
  ASSERT_EQ(::chmod(path_.c_str(), 0600), 0);
  const std::string good = text_of(path_);
  for (const std::string& bad : {std::string(), good.substr(0, 63), good + "0", "x" + good}) {
    std::ofstream(path_) << bad;
    EXPECT_THAT(refusal(path_), HasSubstr("64 hexadecimal digits"));
    EXPECT_THAT(refusal(path_), testing::Not(HasSubstr(good.substr(0, 10)))) << "the key is told";
  }
}

}  // namespace
}  // namespace lockstep::tool
