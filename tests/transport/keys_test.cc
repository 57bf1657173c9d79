#include "transport/keys.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <set>

#include "lockstep/error.h"
#include "sys/private_file.h"
#include "tests/sys/temporary_directory.h"

namespace lockstep::transport {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kHex = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
constexpr const char* kBase64 = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

JobKey counting() {
  std::array<std::byte, JobKey::kBytes> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  return JobKey(bytes);
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}

class KeyFile : public testing::Test {
 protected:
  std::string write(const std::string& content, mode_t mode = 0600) {
    std::string path = directory_.path() + "/job.key";
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }
  std::string refused(const std::string& content, mode_t mode = 0600) {
    const std::string path = write(content, mode);
    std::string text = refusal([&] { (void)JobKey::from_file(path); });
    EXPECT_THAT(text, HasSubstr(path));
    return text;
  }

  TemporaryDirectory directory_;
};

TEST(JobKey, FromText) {
  EXPECT_TRUE(JobKey::from_text(kHex, "X") == counting());
  EXPECT_TRUE(JobKey::from_text(std::string("  ") + kHex + "\n", "X") == counting());
  EXPECT_TRUE(JobKey::from_text(kBase64, "X") == counting());
  EXPECT_TRUE(JobKey::from_text(std::string(kBase64, 43), "X") == counting());
  EXPECT_EQ(counting().to_text(), kHex);
}

TEST(JobKey, FromWrongText) {
  const auto refused = [](const std::string& text) {
    std::string error =
        refusal([&] { (void)JobKey::from_text(text, "the variable LOCKSTEP_KEY"); });
    EXPECT_THAT(error, AllOf(HasSubstr("the variable LOCKSTEP_KEY"), HasSubstr("openssl rand")));
    if (text.size() > 1) {
      EXPECT_THAT(error, Not(HasSubstr(text)));
    }
    return error;
  };
  EXPECT_THAT(refused(""), HasSubstr("empty"));
  EXPECT_THAT(refused(" \n"), HasSubstr("empty"));
  EXPECT_THAT(refused(std::string(kHex, 63)), HasSubstr("63 characters"));
  EXPECT_THAT(refused(std::string(kHex) + "00"), HasSubstr("66 characters"));
  EXPECT_THAT(refused(std::string(kHex, 63) + "g"), HasSubstr("no hexadecimal digits"));
  EXPECT_THAT(refused(std::string(42, 'A') + "!="), HasSubstr("does not decode"));
  EXPECT_THAT(refused(std::string(42, 'A') + "B="), HasSubstr("does not decode")) << "spare bits";
  EXPECT_THAT(refused(std::string(64, '0')), HasSubstr("guess"));
}

/// What the system says of the memory at this place, "VmFlags" of /proc/self/smaps.
std::string flags_at(const void* place) {
  const auto at = reinterpret_cast<std::uintptr_t>(place);
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) here = begin <= at && at < end;
    if (here && line.rfind("VmFlags:", 0) == 0) return line + " ";
  }
  return {};
}

/// F17
TEST(JobKey, IsLeftOutOfCoreFiles) {
  const JobKey key = counting();
  const JobKey copy = key;  // NOLINT(performance-unnecessary-copy-initialization): it is looked at
  const PairKey derived = derive(key, {.job = "job", .generation = 1, .client = 1, .server = 0});
  for (const auto bytes : {key.bytes(), copy.bytes(), derived.bytes()}) {
    EXPECT_THAT(flags_at(bytes.data()), HasSubstr(" dd "));
  }
  const int ordinary = 0;
  EXPECT_THAT(flags_at(&ordinary), Not(HasSubstr(" dd ")));
}

TEST(JobKey, RandomOnesDiffer) {
  std::set<std::string> texts;
  for (int i = 0; i < 100; ++i) texts.insert(JobKey::random().to_text());
  EXPECT_EQ(texts.size(), 100U);
  const JobKey key = JobKey::random();
  EXPECT_TRUE(JobKey::from_text(key.to_text(), "X") == key);
}

TEST_F(KeyFile, AllForms) {
  const JobKey key = counting();
  const std::string raw(reinterpret_cast<const char*>(key.bytes().data()), JobKey::kBytes);
  EXPECT_TRUE(JobKey::from_file(write(std::string(kHex) + "\n")) == counting());
  EXPECT_TRUE(JobKey::from_file(write(kBase64)) == counting());
  EXPECT_TRUE(JobKey::from_file(write(raw)) == counting());
  EXPECT_TRUE(JobKey::from_file(write(kHex, 0400)) == counting());
}

TEST_F(KeyFile, OpenToOthersIsRefusedWithTheCommandThatMendsIt) {
  for (const mode_t mode : {0644, 0640, 0604, 0620, 0700, 0666}) {
    const std::string text = refused(kHex, mode);
    char octal[8];
    std::snprintf(octal, sizeof(octal), "%04o", static_cast<unsigned>(mode));
    EXPECT_THAT(text,
                AllOf(HasSubstr(octal), HasSubstr("chmod 600 " + directory_.path() + "/job.key"),
                      Not(HasSubstr(kHex))));
  }
}

TEST_F(KeyFile, WrongContentIsRefusedAndNotShown) {
  EXPECT_THAT(refused(""), HasSubstr("empty"));
  EXPECT_THAT(refused("secret"), AllOf(HasSubstr("6 characters"), Not(HasSubstr("secret"))));
  EXPECT_THAT(refused(std::string(32, 'k')), HasSubstr("32 characters")) << "text, not raw bytes";
  EXPECT_THAT(refused(std::string(32, '\0')), HasSubstr("guess"));
  EXPECT_THAT(refused(std::string(31, '\1')), HasSubstr("31 characters"));
  EXPECT_THAT(refused(std::string(kHex, 63) + "z"), HasSubstr("no hexadecimal digits"));
  EXPECT_THAT(refused(std::string(1000, 'a')), HasSubstr("1000 bytes"));
}

/// Files of a Secret volume of Kubernetes: key -> ..data/key, ..data -> ..2026_11_18, in a directory
/// of mode 1777.
TEST_F(KeyFile, BehindTheLinksOfASecretVolume) {
  const std::string volume = directory_.path() + "/volume";
  ASSERT_EQ(::mkdir(volume.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(volume.c_str(), 01777), 0);
  ASSERT_EQ(::mkdir((volume + "/..2026_11_18").c_str(), 0755), 0);
  ASSERT_EQ(::rename(write(kHex).c_str(), (volume + "/..2026_11_18/key").c_str()), 0);
  ASSERT_EQ(::symlink("..2026_11_18", (volume + "/..data").c_str()), 0);
  ASSERT_EQ(::symlink("..data/key", (volume + "/key").c_str()), 0);
  EXPECT_EQ(JobKey::from_file(volume + "/key").to_text(), kHex);
  // Without the sticky bit others could exchange the links.
  ASSERT_EQ(::chmod(volume.c_str(), 0777), 0);
  EXPECT_THAT(refusal([&] { (void)JobKey::from_file(volume + "/key"); }),
              AllOf(HasSubstr("symbolic link"), HasSubstr("readlink -f")));
}

TEST_F(KeyFile, BehindLinksWithoutAnEnd) {
  const std::string link = directory_.path() + "/link";
  ASSERT_EQ(::symlink("link", link.c_str()), 0);
  EXPECT_THAT(refusal([&] { (void)JobKey::from_file(link); }), HasSubstr("symbolic link"));
}

TEST_F(KeyFile, OnlyARegularFile) {
  const std::string pipe = directory_.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(refusal([&] { (void)JobKey::from_file(pipe); }), HasSubstr("not a regular file"));
  EXPECT_THAT(refusal([&] { (void)JobKey::from_file(directory_.path()); }),
              HasSubstr("not a regular file"));
  EXPECT_THAT(refusal([&] { (void)JobKey::from_file(directory_.path() + "/none"); }),
              AllOf(HasSubstr("/none"), HasSubstr("ENOENT")));
}

/// As Kubernetes writes it if the pod has an fsGroup: read by root and the pod's group.
TEST_F(KeyFile, OfRootsMayBeReadByAGroupIfNobodyWritesIt) {
  const std::string path = write(kHex);
  struct stat file {};
  ASSERT_EQ(::stat(path.c_str(), &file), 0);
  file.st_uid = 0;
  file.st_mode = S_IFREG | 0440;
  EXPECT_NO_THROW(sys::check_private(path, file));
  for (const mode_t mode : {0640, 0444, 0460, 0441}) {
    file.st_mode = S_IFREG | mode;
    EXPECT_THAT(refusal([&] { sys::check_private(path, file); }), HasSubstr("others may know"));
  }
  if (::geteuid() == 0) return;  // this user's own is one of root's
  file.st_uid = ::geteuid();
  file.st_mode = S_IFREG | 0440;
  EXPECT_THAT(refusal([&] { sys::check_private(path, file); }), HasSubstr("others may know"));
}

TEST_F(KeyFile, AnothersFileIsRefused) {
  const std::string path = write(kHex);
  struct stat file {};
  ASSERT_EQ(::stat(path.c_str(), &file), 0);
  EXPECT_NO_THROW(sys::check_private(path, file));
  file.st_uid = 12345;
  EXPECT_THAT(refusal([&] { sys::check_private(path, file); }),
              AllOf(HasSubstr("user 12345"), HasSubstr("chown")));
  // The same through the file itself, where this user can give one away.
  if (::chown(path.c_str(), 12345, 12345) != 0) return;
  EXPECT_THAT(refusal([&] { (void)JobKey::from_file(path); }),
              AllOf(HasSubstr("user 12345"), HasSubstr("chown")));
}

TEST(Pair, IdentityAndBack) {
  const Pair pair{
      .job = "train|17 \xff", .generation = 3, .client = 4, .server = 0, .plane = Plane::data};
  EXPECT_EQ(pair.identity(), "lockstep1|3|client=4|server=0|data|train|17 \xff");
  EXPECT_EQ(Pair::parse(pair.identity()), pair);
  const Pair empty{};
  EXPECT_EQ(Pair::parse(empty.identity()), empty);
  const Pair last{.job = std::string(Pair::kMaxJob, 'j'),
                  .generation = UINT64_MAX,
                  .client = INT32_MAX,
                  .server = INT32_MAX};
  EXPECT_EQ(Pair::parse(last.identity()), last);
  EXPECT_LE(last.identity().size(), 256U);
  EXPECT_THROW((void)Pair{.job = std::string(Pair::kMaxJob + 1, 'j')}.identity(), InvalidUsage);
}

TEST(Pair, OneSpellingOnly) {
  for (const std::string text :
       {"", "lockstep1|", "lockstep1|3|client=4|server=0|data", "lockstep1|3|client=4|server=0",
        "lockstep1|03|client=4|server=0|data|j", "lockstep1|3|client=-4|server=0|data|j",
        "lockstep1|3|client=4|server=+0|data|j", "lockstep1|3|client=4|server=0|other|j",
        "lockstep1|99999999999999999999|client=4|server=0|data|j",
        "lockstep1|3|client=4|server=2147483648|data|j", "lockstep2|3|client=4|server=0|data|j",
        "lockstep1|3|client=4|server=0|dat"}) {
    EXPECT_FALSE(Pair::parse(text).has_value()) << text;
  }
  EXPECT_FALSE(
      Pair::parse("lockstep1|3|client=4|server=0|data|" + std::string(Pair::kMaxJob + 1, 'j')));
}

// Computed apart from OpenSSL, with Python's hmac and hashlib.
TEST(Derive, IsHkdfSha256) {
  const PairKey key = derive(
      counting(),
      {.job = "train-17", .generation = 3, .client = 4, .server = 0, .plane = Plane::control});
  std::string hex;
  for (const std::byte b : key.bytes()) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", std::to_integer<unsigned>(b));
    hex += digits;
  }
  EXPECT_EQ(hex, "30e4f59545a800646d5aeafaa75416c79769bac150588abe96d260693aabc5db");
}

TEST(Derive, EverythingInTheNameCounts) {
  const Pair base{.job = "j", .generation = 1, .client = 2, .server = 3, .plane = Plane::control};
  std::vector<Pair> others(6, base);
  others[0].job = "k";
  others[1].generation = 2;
  others[2].client = 4;
  others[3].server = 4;
  others[4].plane = Plane::data;
  std::swap(others[5].client, others[5].server);
  EXPECT_TRUE(derive(counting(), base) == derive(counting(), base));
  for (const Pair& other : others) {
    EXPECT_FALSE(derive(counting(), base) == derive(counting(), other)) << other.identity();
  }
  EXPECT_FALSE(derive(JobKey::random(), base) == derive(counting(), base));
}

}  // namespace
}  // namespace lockstep::transport
