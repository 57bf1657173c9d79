#include "base/gate.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace): literals only

// Long enough that only a lost wake-up reaches it.
Deadline far_away() { return Deadline::after(30s); }

// Every way of polling before the sleep, the one that sleeps at once first.
const SpinPolicy kPolicies[] = {{},
                                {.pauses = 20, .yields = 8},
                                {.pauses = 2000, .yields = 0},
                                {.pauses = 20, .yields = 8, .idle_yields = 500}};

TEST(Gate, PredicateThatHoldsNeedsNoTime) {
  Gate gate;
  for (const SpinPolicy spin : kPolicies) {
    EXPECT_TRUE(gate.wait([] { return true; }, Deadline::at(Time::min()), spin));
  }
}

TEST(Gate, PredicateThatHoldsIsSeenBeforeTheSleep) {
  for (const SpinPolicy spin : kPolicies) {
    Gate gate;
    bool asleep = true;
    EXPECT_TRUE(gate.wait(
        [&] {
          asleep = gate.has_sleepers();
          return true;
        },
        far_away(), spin));
    EXPECT_FALSE(asleep) << "a waiter that sleeps interrupts every other core first";
  }
}

TEST(Gate, GivesUpAtTheDeadlineNotBefore) {
  Gate gate;
  for (const SpinPolicy spin : kPolicies) {
    const Deadline deadline = Deadline::after(5ms);
    EXPECT_FALSE(gate.wait([] { return false; }, deadline, spin));
    EXPECT_TRUE(deadline.passed());
  }
}

TEST(Gate, DeadlineInThePastGivesUpAtOnce) {
  Gate gate;
  for (const Time past : {Time::min(), Time(-1s), Time(-1ns), Time(0ns), Time(1ns)}) {
    EXPECT_FALSE(gate.wait([] { return false; }, Deadline::at(past)))
        << past.time_since_epoch().count();
  }
}

TEST(Gate, LooksOnceMoreAfterTheDeadline) {
  // The change may come together with the deadline: the last look decides.
  Gate gate;
  int looks = 0;
  EXPECT_TRUE(gate.wait([&] { return ++looks == 3; }, Deadline::at(Time(0ns))));
}

TEST(Gate, NotifyWakesTheWaiter) {
  for (const SpinPolicy spin : kPolicies) {
    Gate gate;
    std::atomic<bool> ready = false;
    std::jthread notifier([&] {
      ready.store(true);
      gate.notify();
    });
    EXPECT_TRUE(gate.wait([&] { return ready.load(); }, far_away(), spin));
  }
}

TEST(Gate, NotifyWithoutAChangeDoesNotEndTheWait) {
  Gate gate;
  std::jthread notifier([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) gate.notify();
  });
  const Deadline deadline = Deadline::after(5ms);
  EXPECT_FALSE(gate.wait([] { return false; }, deadline));
  EXPECT_TRUE(deadline.passed());
}

TEST(Gate, StopRequestedBeforeEndsTheWait) {
  Gate gate;
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(gate.wait([] { return false; }, far_away(), {}, stop.get_token()));
}

TEST(Gate, PredicateThatHoldsWinsOverStop) {
  Gate gate;
  std::stop_source stop;
  stop.request_stop();
  EXPECT_TRUE(gate.wait([] { return true; }, far_away(), {}, stop.get_token()));
}

TEST(Gate, StopRequestWakesASleepingWaiter) {
  // The request falls at every point of the waiter's way to sleep.
  for (int round = 0; round < 300; ++round) {
    Gate gate;
    std::atomic<bool> started = false;
    std::atomic<bool> held = true;
    std::jthread waiter([&](std::stop_token stop) {
      started.store(true);
      held.store(gate.wait([] { return false; }, far_away(), {}, std::move(stop)));
    });
    while (!started.load()) sched_yield();
    for (int i = 0; i < round; ++i) sched_yield();
    waiter.request_stop();
    waiter.join();
    ASSERT_FALSE(held.load());
  }
}

// The narrowest place, hit every time: the change comes after the waiter's look at its predicate
// and before its sleep. A lost wake-up would sleep until the deadline.
TEST(Gate, NotifyBetweenTheLookAndTheSleepIsNotLost) {
  Gate gate;
  bool ready = false;
  const Deadline deadline = far_away();
  EXPECT_TRUE(gate.wait(
      [&] {
        if (ready) return true;
        ready = true;
        gate.notify();
        return false;
      },
      deadline));
  EXPECT_FALSE(deadline.passed());
}

TEST(Gate, StopBetweenTheLookAndTheSleepIsNotLost) {
  Gate gate;
  std::stop_source stop;
  const Deadline deadline = far_away();
  EXPECT_FALSE(gate.wait(
      [&] {
        stop.request_stop();
        return false;
      },
      deadline, {}, stop.get_token()));
  EXPECT_FALSE(deadline.passed());
}

TEST(Gate, OneNotifyWakesManyWaiters) {
  for (const SpinPolicy spin : kPolicies) {
    Gate gate;
    std::atomic<bool> open = false;
    std::atomic<int> through = 0;
    std::vector<std::jthread> waiters(16);
    for (auto& waiter : waiters) {
      waiter = std::jthread([&] {
        if (gate.wait([&] { return open.load(); }, far_away(), spin)) through.fetch_add(1);
      });
    }
    open.store(true);
    gate.notify();
    waiters.clear();
    EXPECT_EQ(through.load(), 16);
  }
}

// Threads take turns round a ring through one gate: each turn is a chance to lose a wake-up, which
// would end in the deadline. Returns the number of turns taken.
int run_ring(Gate& waiting_side, Gate& notifying_side, int threads, int turns, SpinPolicy spin) {
  std::atomic<int> turn = 0;
  std::vector<std::jthread> ring(threads);
  const Deadline deadline = far_away();
  for (int me = 0; me < threads; ++me) {
    ring[me] = std::jthread([&, me] {
      for (int mine = me; mine < turns; mine += threads) {
        // Relaxed on purpose: the gate itself must order the change against the sleep.
        const auto is_mine = [&] { return turn.load(std::memory_order_relaxed) == mine; };
        // A lost wake-up is found at the deadline, where the last look still says true.
        if (!waiting_side.wait(is_mine, deadline, spin) || deadline.passed()) return;
        turn.store(mine + 1, std::memory_order_relaxed);
        notifying_side.notify();
      }
    });
  }
  ring.clear();
  return turn.load();
}

TEST(Gate, LosesNoWakeUpWithMoreThreadsThanCores) {
  constexpr int kTurns = 2'000;  // on a busy machine each costs a turn of the scheduler
  for (const SpinPolicy spin : kPolicies) {
    for (const int threads : {2, 3, 4 * usable_cores()}) {
      Gate gate;
      EXPECT_EQ(run_ring(gate, gate, threads, kTurns, spin), kTurns)
          << threads << " threads, " << spin.pauses << " pauses";
    }
  }
}

TEST(Gate, WorksThroughTwoMappingsOfSharedMemory) {
  // As two processes have it: the same page at two addresses. A private futex would not wake.
  const int file = memfd_create("gate", MFD_CLOEXEC);
  ASSERT_GE(file, 0);
  ASSERT_EQ(ftruncate(file, sizeof(Gate)), 0);
  const auto map = [file] {
    return mmap(nullptr, sizeof(Gate), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  };
  void* const here = map();
  void* const there = map();
  close(file);
  ASSERT_NE(here, MAP_FAILED);
  ASSERT_NE(there, MAP_FAILED);
  ASSERT_NE(here, there);
  auto* const gate = std::construct_at(static_cast<Gate*>(here));
  constexpr int kTurns = 2'000;
  EXPECT_EQ(run_ring(*gate, *static_cast<Gate*>(there), 2, kTurns, {}), kTurns);
  munmap(here, sizeof(Gate));
  munmap(there, sizeof(Gate));
}

TEST(SpinPolicy, SpinsOnlyWhereEveryThreadHasACore) {
  const SpinPolicy fits = SpinPolicy::for_threads(2, 2);
  const SpinPolicy crowded = SpinPolicy::for_threads(3, 2);
  EXPECT_GT(fits.pauses, 10 * crowded.pauses);
  EXPECT_LE(crowded.pauses, 100);
  EXPECT_GT(crowded.yields, 0);
}

TEST(SpinPolicy, ThreadsThatComputePollLongerIfEveryOneHasACore) {
  EXPECT_GT(SpinPolicy::for_computing_threads(2, 2).idle_yields, 1000);
  EXPECT_EQ(SpinPolicy::for_computing_threads(3, 2).idle_yields, 0);
  EXPECT_EQ(SpinPolicy::for_computing_threads(2, 2).pauses, SpinPolicy::for_threads(2, 2).pauses);
}

// On a core that another thread keeps busy, every yield gives it away for a slice of time: 100,000
// of them would take minutes.
TEST(Gate, PollingEndsWhenSomebodyWantsTheCore) {
  cpu_set_t before;
  CPU_ZERO(&before);
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  int core = 0;
  while (!CPU_ISSET(core, &before)) ++core;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);  // the thread below inherits it
  std::atomic<bool> running = false;
  {
    const std::jthread busy([&](const std::stop_token& stop) {
      running = true;
      while (!stop.stop_requested()) {
      }
    });
    while (!running) std::this_thread::yield();
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_FALSE(Gate::poll([] { return false; }, {.idle_yields = 100'000}));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST(UsableCores, FollowTheAffinityMask) {
  EXPECT_GE(usable_cores(), 1);
  // On a thread of its own: the mask ends with it.
  std::jthread([] {
    cpu_set_t all;
    ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
    int first = 0;
    while (!CPU_ISSET(first, &all)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(usable_cores(), 1);
  });
}

}  // namespace
}  // namespace lockstep
