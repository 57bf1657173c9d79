// Gate: the one blocking primitive.
//
// A thread waits at a gate until a predicate over some shared atomics holds; whoever changes those
// atomics calls notify() afterwards. A waiter first polls (SpinPolicy), then sleeps in the kernel
// on a futex with an absolute deadline. notify() costs one read of memory while nobody sleeps.
//
//   std::atomic<bool> ready = false; Gate gate;
//   // waiter                                              // notifier
//   gate.wait([&] { return ready.load(); }, deadline);     ready.store(true); gate.notify();
//
// The predicate runs on the waiting thread, any number of times, and must not block. Any number of
// threads may wait and notify. A Gate may live in memory shared between processes. It must outlive
// every notify() that has begun: a waiter that is let through must not destroy it at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <stop_token>

#include "base/deadline.h"

namespace lockstep {

/// How long a waiter polls before it sleeps: first `eager` polls without a pause, which can take
/// longer than what is awaited; `pauses` polls with a pause instruction between them; then `yields`
/// polls that give the core away, then `idle_yields` more as long as nobody takes it: on a busy
/// machine a sleeper is served sooner than one that keeps giving way.
struct SpinPolicy {
  int eager = 0;
  int pauses = 0;
  int yields = 0;
  int idle_yields = 0;

  /// For `runnable` threads that wait for each other on `cores` cores: some tens of microseconds if
  /// every one can have a core of its own; otherwise it gives the core away again and again, since
  /// spinning would keep the awaited thread off it.
  static SpinPolicy for_threads(int runnable, int cores) noexcept;
  /// The same for threads that compute for milliseconds between their meetings: their arrivals lie
  /// far apart, and to sleep and be woken would cost a part of every step. Some milliseconds, on
  /// cores that nobody else wants.
  static SpinPolicy for_computing_threads(int runnable, int cores) noexcept;
};

/// Processors this process may run on (its affinity mask, not the machine). What a quota of its
/// cgroup leaves of them is sys::usable_processors().
int usable_cores() noexcept;

class Gate {
 public:
  Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  /// Wakes every waiter so that it looks at its predicate again. Call after the change it reads.
  void notify() noexcept {
    // Our change must be visible before we look for sleepers: either a waiter sees it, or we see
    // the waiter. The waiter pays for that order where the system lets it (barrier_on_all); a
    // barrier of our own would cost every notification the time of a trip to another core's cache.
    if (waiters_pay()) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
      if (sleepers_.load(std::memory_order_relaxed) != 0) wake_all();
    } else if (sleepers_.fetch_add(0) != 0) {
      wake_all();
    }
  }

  /// Polls as the policy says, without sleeping. True once the predicate holds.
  template <class Predicate>
  static bool poll(Predicate&& holds, SpinPolicy spin) {
    for (int i = 0; i < spin.eager; ++i) {
      if (holds()) return true;
    }
    for (int i = 0; i < spin.pauses; ++i) {
      if (holds()) return true;
      pause();
    }
    int slices = 0;
    for (int i = 0; i < spin.yields; ++i) {
      if (holds()) return true;
      // Others compute here: a sleeper is woken, a yielder has to wait for its turn every time.
      if (yield() >= kSlice && ++slices == kMostSlices) return false;
    }
    for (int i = 0; i < spin.idle_yields; ++i) {
      if (holds()) return true;
      if (yield() >= kTaken) break;
    }
    return false;
  }

  /// True once the predicate holds; false if the deadline passed or a stop was requested first.
  template <class Predicate>
  bool wait(Predicate&& holds, Deadline deadline, SpinPolicy spin = {}, std::stop_token stop = {}) {
    // Before the barrier, which interrupts every core that runs a thread of this process.
    if (poll(holds, spin) || holds()) return true;
    const std::stop_callback wake_on_stop(stop, [this] { wake_all(); });
    const Sleeper registered(*this);
    barrier_on_all();
    for (;;) {
      const std::uint32_t seen = epoch_.load();
      if (holds()) return true;
      if (stop.stop_requested()) return false;
      if (!sleep(seen, deadline)) return holds();
    }
  }

  /// Whether a waiter has ended its polling.
  [[nodiscard]] bool has_sleepers() const noexcept { return sleepers_.load() != 0; }

 private:
  struct Sleeper {
    explicit Sleeper(Gate& gate) : gate_(gate) { gate_.sleepers_.fetch_add(1); }
    ~Sleeper() { gate_.sleepers_.fetch_sub(1); }
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;
    Gate& gate_;
  };

  /// Notifications need no barrier of their own: this process takes part in barrier_on_all().
  static bool waiters_pay() noexcept { return kWaitersPay; }
  /// Orders what this thread did before against what every running thread of every process that
  /// takes part did and will do.
  static void barrier_on_all() noexcept;

  static constexpr Duration kTaken = std::chrono::microseconds(20);   // somebody had the core
  static constexpr Duration kSlice = std::chrono::microseconds(500);  // and kept it
  static constexpr int kMostSlices = 8;

  static void pause() noexcept;
  /// How long it took until the core came back.
  static Duration yield() noexcept;
  void wake_all() noexcept;
  /// False once the deadline has passed.
  bool sleep(std::uint32_t seen, Deadline deadline) noexcept;
  bool sleep_until(std::uint32_t seen, Deadline deadline) noexcept;

  static const bool kWaitersPay;
  std::atomic<std::uint32_t> epoch_ = 0;
  std::atomic<std::uint32_t> sleepers_ = 0;
};

}  // namespace lockstep
