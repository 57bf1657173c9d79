#include "base/thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <optional>
#include <thread>

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

TEST(Thread, OfAPinnedThreadRunsWhereThatOneMightBefore) {
  const auto processors = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
    return set;
  };
  const auto of_a_new_thread = [&] {
    cpu_set_t seen;
    start_thread(
        "ls-test", [&](const std::stop_token&) { seen = processors(); }, unexpected)
        .join();
    return seen;
  };
  const cpu_set_t all = processors();
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    keep_processors_for_new_threads();
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    const cpu_set_t seen = of_a_new_thread();
    EXPECT_TRUE(CPU_EQUAL(&seen, &all));
    const cpu_set_t own = processors();
    EXPECT_TRUE(CPU_EQUAL(&own, &one));
  }).join();
  const cpu_set_t seen = of_a_new_thread();
  EXPECT_TRUE(CPU_EQUAL(&seen, &all));
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
