// The measurement behind docs/decisions/0001-gate-is-a-futex.md: the Gate against a mutex with a
// condition variable, both with a deadline on every wait.
//
//   build/bench/bench/base/bench_gate [runs]
//
// Every figure is the median of `runs` runs (default 11) with the smallest and the largest.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/gate.h"

namespace lockstep {
namespace {

using Nanoseconds = std::chrono::duration<double, std::nano>;

constexpr std::chrono::seconds kPatience(30);

// What is measured: a number that grows, threads that wait until it has reached theirs.
class GateTurn {
 public:
  explicit GateTurn(SpinPolicy spin) : spin_(spin) {}
  void await(int wanted) {
    if (!gate_.wait([&] { return turn_.load(std::memory_order_acquire) >= wanted; },
                    Deadline::after(kPatience), spin_)) {
      std::abort();
    }
  }
  void set(int value) {
    turn_.store(value, std::memory_order_release);
    gate_.notify();
  }

 private:
  SpinPolicy spin_;
  std::atomic<int> turn_ = 0;
  Gate gate_;
};

class ConditionTurn {
 public:
  void await(int wanted) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, std::chrono::steady_clock::now() + kPatience,
                             [&] { return turn_ >= wanted; })) {
      std::abort();
    }
  }
  void set(int value) {
    {
      const std::lock_guard lock(mutex_);
      turn_ = value;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int turn_ = 0;
};

template <class F>
double nanoseconds_each(int count, F&& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return Nanoseconds(std::chrono::steady_clock::now() - begin).count() / count;
}

// `threads` threads take turns round a ring; the time of one turn.
template <class MakeTurn>
double ring(MakeTurn make, int threads, int turns) {
  auto turn = make();
  return nanoseconds_each(turns, [&] {
    std::vector<std::jthread> all(threads);
    for (int me = 0; me < threads; ++me) {
      all[me] = std::jthread([&, me] {
        for (int mine = me; mine < turns; mine += threads) {
          turn.await(mine);
          turn.set(mine + 1);
        }
      });
    }
  });
}

// From set() to the waiter running, with the waiter asleep: it has had 200 us to fall asleep.
template <class MakeTurn>
double wake_latency(MakeTurn make, int count) {
  auto turn = make();
  std::atomic<int> taken = 0;
  std::atomic<std::int64_t> started = 0;
  std::vector<double> each;
  const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
  std::jthread waiter([&] {
    for (int i = 1; i <= count; ++i) {
      turn.await(i);
      each.push_back(static_cast<double>(now() - started.load()));
      taken.store(i);
    }
  });
  for (int i = 1; i <= count; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    started.store(now());
    turn.set(i);
    while (taken.load() != i) std::this_thread::yield();
  }
  waiter.join();
  std::nth_element(each.begin(), each.begin() + count / 2, each.end());
  return each[count / 2];
}

// What set() costs while nobody waits: the common case of a busy group.
template <class MakeTurn>
double idle_notify(MakeTurn make, int count) {
  auto turn = make();
  return nanoseconds_each(count, [&] {
    for (int i = 0; i < count; ++i) turn.set(i);
  });
}

struct Spread {
  double median, least, most;
};

template <class F>
Spread repeat(int runs, F&& measure) {
  std::vector<double> all(runs);
  for (double& one : all) one = measure();
  std::sort(all.begin(), all.end());
  return {all[runs / 2], all.front(), all.back()};
}

std::string show(const Spread& s) {
  return fmt::format("{:>9.0f} ({:.0f}-{:.0f})", s.median, s.least, s.most);
}

int run(int runs) {
  const int cores = usable_cores();
  const SpinPolicy alone = SpinPolicy::for_threads(cores, cores);
  const SpinPolicy crowded = SpinPolicy::for_threads(cores + 1, cores);
  const auto gate_with = [](SpinPolicy spin) { return [spin] { return GateTurn(spin); }; };
  const auto condition = [] { return ConditionTurn(); };

  fmt::print("{} usable cores; nanoseconds, median of {} runs (least-most)\n", cores, runs);
  fmt::print("gate: sleeps at once; spin: {} pauses first; yield: {} pauses, {} yields first\n\n",
             alone.pauses, crowded.pauses, crowded.yields);
  fmt::print("{:<34}{:>26}{:>26}{:>26}{:>26}\n", "", "condition variable", "gate", "gate, spin",
             "gate, yield");
  const auto row = [&](const char* name, auto measure) {
    fmt::print("{:<34}", name);
    fmt::print("{:>26}", show(repeat(runs, [&] { return measure(condition); })));
    for (const SpinPolicy spin : {SpinPolicy{}, alone, crowded}) {
      fmt::print("{:>26}", show(repeat(runs, [&] { return measure(gate_with(spin)); })));
    }
    fmt::print("\n");
    std::fflush(stdout);
  };
  row("2 threads, ping-pong, one way", [](auto make) { return ring(make, 2, 4'000); });
  row("1 notifier -> 1 sleeping waiter", [](auto make) { return wake_latency(make, 200); });
  row("notify, nobody waits", [](auto make) { return idle_notify(make, 200'000); });
  row("8 threads taking turns", [](auto make) { return ring(make, 8, 4'000); });

  fmt::print("\nHow long to poll before the sleep: one turn of a ring\n");
  fmt::print("{:<34}{:>26}{:>26}\n", "pauses, yields", "2 threads", "8 threads");
  for (const SpinPolicy spin :
       {SpinPolicy{.pauses = 0, .yields = 0}, SpinPolicy{.pauses = 2000, .yields = 0},
        SpinPolicy{.pauses = 2000, .yields = 8}, SpinPolicy{.pauses = 200, .yields = 0},
        SpinPolicy{.pauses = 200, .yields = 8}, SpinPolicy{.pauses = 200, .yields = 50},
        SpinPolicy{.pauses = 20, .yields = 8}, SpinPolicy{.pauses = 20, .yields = 50},
        SpinPolicy{.pauses = 0, .yields = 50}}) {
    fmt::print("{:<34}", fmt::format("{}, {}", spin.pauses, spin.yields));
    for (const int threads : {2, 8}) {
      fmt::print("{:>26}",
                 show(repeat(runs, [&] { return ring(gate_with(spin), threads, 4'000); })));
    }
    fmt::print("\n");
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::run(argc > 1 ? std::atoi(argv[1]) : 11); }
