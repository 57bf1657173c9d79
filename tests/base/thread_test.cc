#include "base/thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <optional>

#include "base/gate.h"

namespace lockstep {
namespace {

std::string current_name() {
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return name;
}

void unexpected(const Status& why) { ADD_FAILURE() << why.message(); }

TEST(Thread, HasItsNameCutToFifteenCharacters) {
  std::string short_name;
  std::string long_name;
  start_thread(
      "ls-pump", [&](const std::stop_token&) { short_name = current_name(); }, unexpected)
      .join();
  start_thread(
      "ls-0123456789abcdef", [&](const std::stop_token&) { long_name = current_name(); },
      unexpected)
      .join();
  EXPECT_EQ(short_name, "ls-pump");
  EXPECT_EQ(long_name, "ls-0123456789ab");
}

TEST(Thread, ExceptionOfTheBodyGoesToOnError) {
  std::optional<Status> seen;
  start_thread(
      "ls-test", [](const std::stop_token&) { throw PeerLost("gone", Code::aborted, {3}); },
      [&](const Status& why) { seen = why; })
      .join();
  ASSERT_TRUE(seen.has_value());
  EXPECT_EQ(*seen, Status(ErrorKind::peer_lost, Code::aborted, "gone", {3}));
}

TEST(Thread, AnythingElseThrownGoesToOnErrorToo) {
  std::optional<Status> seen;
  start_thread(
      "ls-test", [](const std::stop_token&) { throw 42; }, [&](const Status& why) { seen = why; })
      .join();
  ASSERT_TRUE(seen.has_value());
  EXPECT_EQ(seen->kind(), ErrorKind::internal);
}

TEST(Thread, OwnerEndsItThroughTheStopToken) {
  std::atomic<bool> ended = false;
  {
    Gate gate;
    const std::jthread thread = start_thread(
        "ls-test",
        [&](std::stop_token stop) {
          gate.wait([] { return false; }, Deadline::after(std::chrono::seconds(30)), {},
                    std::move(stop));
          ended = true;
        },
        unexpected);
  }
  EXPECT_TRUE(ended.load());
}

}  // namespace
}  // namespace lockstep
