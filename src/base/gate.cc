#include "base/gate.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "base/thread_scheduler.h"

namespace lockstep {
namespace {

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* until) noexcept {
  static_assert(sizeof(word) == sizeof(std::uint32_t));
  return syscall(SYS_futex, &word, operation, value, until, nullptr, FUTEX_BITSET_MATCH_ANY);
}

}  // namespace

SpinPolicy SpinPolicy::for_threads(int runnable, int cores) noexcept {
  // Nothing changes before a simulated thread has given its turn away.
  if (ThreadScheduler::current() != nullptr) return {};
  // A pause is some 10-40 ns. Yields follow, since the scheduler may have put two of the threads on
  // one core even if there are enough: then only giving it away lets the other one get on.
  if (runnable <= cores) return {.eager = 40, .pauses = 400, .yields = 64};
  // The awaited thread is likely to be on this very core, and each yield may bring it on.
  return {.pauses = 4, .yields = 256};
}

SpinPolicy SpinPolicy::for_computing_threads(int runnable, int cores) noexcept {
  SpinPolicy policy = for_threads(runnable, cores);
  if (ThreadScheduler::current() != nullptr) return policy;
  // A yield that nobody takes up is some 300 ns.
  if (runnable <= cores) policy.idle_yields = 8192;
  return policy;
}

int usable_cores() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return CPU_COUNT(&set);
}

void Gate::pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

Duration Gate::yield() noexcept {
  using RealClock = std::chrono::steady_clock;
  const Time before = RealClock::now();
  sched_yield();
  return RealClock::now() - before;
}

// Before main: gates are used by threads only, and those of other files' static objects find false
// here, which is right, too.
const bool Gate::kWaitersPay =
    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;

void Gate::barrier_on_all() noexcept {
  if (ThreadScheduler::current() != nullptr) return;  // one thread at a time, in turns
  syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

void Gate::wake_all() noexcept {
  epoch_.fetch_add(1);
  if (ThreadScheduler::current() != nullptr) return;  // it looks at the epoch
  futex(epoch_, FUTEX_WAKE_BITSET, INT_MAX, nullptr);
}

// A process that cannot order its waiters against the notifications of others looks again by
// itself.
bool Gate::sleep(std::uint32_t seen, Deadline deadline) noexcept {
  if (ThreadScheduler* scheduler = ThreadScheduler::current()) {
    return scheduler->wait([&] { return epoch_.load() != seen; }, deadline);
  }
  if (kWaitersPay) return sleep_until(seen, deadline);
  constexpr auto kNap = std::chrono::milliseconds(5);
  const Deadline soon = Deadline::after(kNap);
  if (deadline.time() <= soon.time()) return sleep_until(seen, deadline);
  (void)sleep_until(seen, soon);
  return true;
}

bool Gate::sleep_until(std::uint32_t seen, Deadline deadline) noexcept {
  // FUTEX_WAIT_BITSET takes an absolute CLOCK_MONOTONIC time: interrupted sleeps do not add up.
  timespec until{};
  if (!deadline.is_never()) {
    const auto since_epoch = deadline.time().time_since_epoch();
    // The kernel refuses negative times, and a refused sleep would make the waiter spin forever.
    if (since_epoch.count() < 0) return false;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_epoch);
    until.tv_sec = seconds.count();
    until.tv_nsec = std::chrono::nanoseconds(since_epoch - seconds).count();
  }
  const long result =
      futex(epoch_, FUTEX_WAIT_BITSET, seen, deadline.is_never() ? nullptr : &until);
  return !(result != 0 && errno == ETIMEDOUT);
}

}  // namespace lockstep
