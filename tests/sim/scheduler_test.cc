#include "sim/scheduler.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <stdexcept>
#include <string>

#include "base/gate.h"
#include "base/thread.h"
#include "sim/network.h"

namespace lockstep::sim {
namespace {

using namespace std::chrono_literals;

TEST(SimScheduler, GatesWaitInVirtualTime) {
  World world(1);
  Scheduler scheduler(world);
  Gate gate;
  std::atomic<bool> open = false;
  Time passed{};
  Time gave_up{};
  scheduler.spawn("a", "waiter", [&] {
    EXPECT_TRUE(gate.wait([&] { return open.load(); }, Deadline::after(1h)));
    passed = MonotonicClock().now();
    EXPECT_FALSE(Gate().wait([] { return false; }, Deadline::after(20min)));
    gave_up = MonotonicClock().now();
  });
  scheduler.spawn("b", "notifier", [&] {
    Gate().wait([] { return false; }, Deadline::after(10min));
    open = true;
    gate.notify();
  });
  EXPECT_TRUE(scheduler.run_until([&] { return scheduler.running() == 0; }, Deadline::never()));
  EXPECT_GE(passed, Time() + 10min);
  EXPECT_LT(passed, Time() + 10min + 1ms);
  EXPECT_EQ(gave_up, passed + 20min);
}

TEST(SimScheduler, TimeIsRealAgainAfterIt) {
  const Time before = MonotonicClock().now();
  {
    World world(1);
    const Scheduler scheduler(world);
    EXPECT_EQ(MonotonicClock().now(), Time());
  }
  EXPECT_GE(MonotonicClock().now(), before);
  EXPECT_EQ(lockstep::ThreadScheduler::current(), nullptr);
}

TEST(SimScheduler, AWaitThatNothingEndsIsSeen) {
  World world(1);
  Scheduler scheduler(world);
  scheduler.spawn("a", "stuck", [&] { Gate().wait([] { return false; }, Deadline::never()); });
  EXPECT_FALSE(scheduler.run_until([&] { return scheduler.running() == 0; }, Deadline::never()));
  EXPECT_EQ(scheduler.describe_running(), "a stuck");
}

TEST(SimScheduler, ThreadsStartStopAndJoinThreads) {
  World world(1);
  Scheduler scheduler(world);
  std::string story;
  scheduler.spawn("a", "main", [&] {
    Gate gate;
    Thread worker(
        "worker",
        [&](const std::stop_token& stop) {
          story += "began ";
          gate.wait([] { return false; }, Deadline::never(), {}, stop);
          story += "stopped ";
          throw std::runtime_error("failed");
        },
        [&](const Status& why) { story += why.message(); });
    Gate().wait([] { return false; }, Deadline::after(1s));
    worker.request_stop();
    worker.join();
    story += " joined";
  });
  EXPECT_TRUE(scheduler.run_until([&] { return scheduler.running() == 0; }, Deadline::never()));
  EXPECT_NE(story.find("began stopped "), std::string::npos) << story;
  EXPECT_NE(story.find("failed joined"), std::string::npos) << story;
}

/// Two threads are each in a handler, of different exceptions, when they give way to the other.
TEST(SimScheduler, ExceptionsBelongToTheirThread) {
  World world(1);
  Scheduler scheduler(world);
  int right = 0;
  for (const char* name : {"a", "b", "c"}) {
    scheduler.spawn(name, "main", [&, name] {
      for (int round = 0; round < 10; ++round) {
        try {
          throw std::runtime_error(name);
        } catch (const std::runtime_error&) {
          Gate().wait([] { return false; }, Deadline::after(1ms));
          try {
            throw;
          } catch (const std::runtime_error& again) {
            right += std::string(again.what()) == name ? 1 : 0;
          }
        }
      }
    });
  }
  EXPECT_TRUE(scheduler.run_until([&] { return scheduler.running() == 0; }, Deadline::never()));
  EXPECT_EQ(right, 30);
}

TEST(SimScheduler, APausedProcessStandsStill) {
  World world(1);
  Scheduler scheduler(world);
  Time end{};
  scheduler.spawn("a", "main", [&] {
    for (int i = 0; i < 10; ++i) Gate().wait([] { return false; }, Deadline::after(1ms));
    end = MonotonicClock().now();
  });
  scheduler.run_until([&] { return world.now() >= Time() + 5ms; }, Deadline::never());
  scheduler.pause("a", Time() + 1s);
  EXPECT_TRUE(scheduler.run_until([&] { return scheduler.running() == 0; }, Deadline::never()));
  EXPECT_GE(end, Time() + 1s);
  EXPECT_LT(end, Time() + 1s + 10ms);
}

/// What comes in a second does not come before what can be done now.
TEST(SimScheduler, NoThreadStandsStillUntilAFarEvent) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    World world(seed);
    Scheduler scheduler(world);
    world.schedule(Time() + 1s, [] {});
    Time end{};
    scheduler.spawn("a", "main", [&] {
      for (int i = 0; i < 10; ++i) Gate().wait([] { return false; }, Deadline::after(1ms));
      end = MonotonicClock().now();
    });
    EXPECT_TRUE(scheduler.run_until([&] { return scheduler.running() == 0; }, Deadline::never()));
    EXPECT_LT(end, Time() + 100ms) << "seed " << seed;
  }
}

std::string conversation(std::uint64_t seed) {
  World world(seed);
  Network network(world, {.delay = 1ms, .jitter = 2ms, .piece = 3});
  Scheduler scheduler(world);
  std::string heard;
  scheduler.spawn("host0", "server", [&] {
    auto poller = network.at("host0").poller();
    auto listener = network.at("host0").listen("host0:1");
    poller->watch(*listener);
    EXPECT_TRUE(poller->wait(Deadline::after(1s)));
    auto connection = listener->accept();
    ASSERT_NE(connection, nullptr);
    poller->watch(*connection, sys::Interest::read);
    std::array<std::byte, 64> place;
    while (heard.size() < 10 && poller->wait(Deadline::after(1s))) {
      const auto got = connection->read(place);
      heard.append(reinterpret_cast<const char*>(place.data()), got.bytes);
    }
    heard += "@" + std::to_string(world.now().time_since_epoch().count());
  });
  scheduler.spawn("host1", "client", [&] {
    Gate().wait([] { return false; }, Deadline::after(1us));
    auto poller = network.at("host1").poller();
    auto connection = network.at("host1").connect("host0:1");
    poller->watch(*connection, sys::Interest::write);
    EXPECT_TRUE(poller->wait(Deadline::after(1s)));
    EXPECT_TRUE(connection->is_open());
    const std::string text = "0123456789";
    (void)connection->write(std::as_bytes(std::span(text)));
    Gate().wait([] { return false; }, Deadline::after(1s));
  });
  EXPECT_TRUE(scheduler.run_until([&] { return scheduler.running() == 0; }, Deadline::never()));
  return heard;
}

TEST(SimScheduler, PollersWaitAndASeedIsOneRun) {
  EXPECT_TRUE(conversation(1).starts_with("0123456789@"));
  EXPECT_EQ(conversation(1), conversation(1));
  EXPECT_NE(conversation(1), conversation(2));
}

}  // namespace
}  // namespace lockstep::sim
