#include "launch/outlet.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace lockstep::tool {
namespace {

using namespace std::chrono_literals;

class OutletTest : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reads_ = sys::Descriptor(ends[0]);
    writes_ = sys::Descriptor(ends[1]);
    ::fcntl(reads_.get(), F_SETFL, O_NONBLOCK);
    ::signal(SIGPIPE, SIG_IGN);
  }
  std::string read_all() {
    std::string text;
    char part[4096];
    for (ssize_t size = 0; (size = ::read(reads_.get(), part, sizeof part)) > 0;) {
      text.append(part, static_cast<std::size_t>(size));
    }
    return text;
  }
  static void write_all(Outlet& outlet) {
    while (outlet.pending() && outlet.write_some()) {
    }
  }
  sys::Descriptor reads_;
  sys::Descriptor writes_;
};

TEST_F(OutletTest, LinesOfRanksAreNotMixed) {
  Outlet outlet(writes_.get());
  outlet.put(0, "[0] ", "whole\n");
  outlet.put(1, "[1] ", "begin");
  outlet.put(1, "[1] ", " goes on");
  outlet.put(0, "[0] ", "between\n");
  outlet.put(1, "[1] ", "end\n");
  write_all(outlet);
  EXPECT_EQ(read_all(), "[0] whole\n[1] begin goes on\n[0] between\n[1] end\n");
}

TEST_F(OutletTest, WithoutPrefixesNothingIsAdded) {
  Outlet outlet(writes_.get());
  outlet.put(0, "", "a");
  outlet.put(1, "", "b\n");
  write_all(outlet);
  EXPECT_EQ(read_all(), "ab\n");
}

TEST_F(OutletTest, AFullPipeNeverBlocksAndItsFlagsStayTheUsers) {
  Outlet outlet(writes_.get());
  outlet.put(0, "", std::string(std::size_t{1} << 20, 'x') + "\n");
  write_all(outlet);
  EXPECT_TRUE(outlet.pending());
  EXPECT_FALSE(outlet.write_some());
  EXPECT_EQ(::fcntl(writes_.get(), F_GETFL) & O_NONBLOCK, 0);
  std::size_t got = 0;
  while (outlet.pending()) {
    got += read_all().size();
    write_all(outlet);
  }
  EXPECT_EQ(got + read_all().size(), (std::size_t{1} << 20) + 1);
  EXPECT_TRUE(outlet.dropped().empty());
}

TEST_F(OutletTest, AFullQueueIsWaitedForASecondThenDrops) {
  Outlet outlet(writes_.get());
  const Time start = Time() + 1h;
  const std::string line = std::string((std::size_t{1} << 20) - 1, 'x') + "\n";
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(outlet.wants(3, start));
    outlet.put(3, "", line);
  }
  EXPECT_FALSE(outlet.wants(3, start));
  EXPECT_EQ(outlet.retry_at(3), start + 1s);
  EXPECT_TRUE(outlet.wants(4, start)) << "other ranks are not held";
  EXPECT_FALSE(outlet.wants(3, start + 999ms));
  EXPECT_TRUE(outlet.wants(3, start + 1s));
  outlet.put(3, "", line);
  outlet.put(3, "", "short\n");
  ASSERT_EQ(outlet.dropped().count(3), 1U);
  EXPECT_EQ(outlet.dropped().at(3).lines, 2U);
  EXPECT_EQ(outlet.dropped().at(3).bytes, line.size() + 6);

  std::string shown;
  while (outlet.pending()) {
    write_all(outlet);
    shown += read_all();
  }
  EXPECT_EQ(shown.size(), 4 * line.size());
  outlet.put(3, "", "again\n");
  write_all(outlet);
  EXPECT_EQ(read_all(), "again\n") << "there is room again";
}

TEST_F(OutletTest, AReaderThatIsGoneIsAnErrorOnce) {
  Outlet outlet(writes_.get());
  reads_ = {};
  outlet.put(2, "", "lost\n");
  EXPECT_FALSE(outlet.write_some());
  EXPECT_EQ(outlet.error(), EPIPE);
  EXPECT_FALSE(outlet.pending());
  outlet.put(2, "", "lost too\n");
  EXPECT_FALSE(outlet.pending());
  EXPECT_EQ(outlet.dropped().at(2).lines, 2U);
}

TEST(Outlet, ASocketIsNotBlockedOnEither) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const sys::Descriptor one(ends[0]);
  const sys::Descriptor other(ends[1]);
  Outlet outlet(one.get());
  outlet.put(0, "", std::string(std::size_t{3} << 20, 'x'));
  while (outlet.write_some()) {
  }
  EXPECT_TRUE(outlet.pending());
  EXPECT_EQ(outlet.error(), 0);
}

TEST(Outlet, AFullDiskIsAnError) {
  const sys::Descriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  Outlet outlet(full.get());
  outlet.put(0, "", "x\n");
  EXPECT_FALSE(outlet.write_some());
  EXPECT_EQ(outlet.error(), ENOSPC);
}

}  // namespace
}  // namespace lockstep::tool
