#include "base/thread.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <system_error>

#include "base/fork.h"

namespace lockstep {
namespace {

// The process in which it became true, as fork_era() counts them from 1 on: a child of a fork has
// none of these threads.
thread_local constinit std::uint32_t own_thread = 0;
std::atomic<std::uint32_t> own_threads = 0;
/// Not empty: the processors of the threads that the calling thread starts.
thread_local std::optional<cpu_set_t> processors_of_new_threads;

}  // namespace

bool is_own_thread() noexcept { return own_thread == forks() + 1; }
bool has_own_threads() noexcept {
  return own_threads.load(std::memory_order_relaxed) == forks() + 1;
}

void keep_processors_for_new_threads() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  // A machine with more processors than the set has room for is refused: its threads inherit.
  if (pthread_getaffinity_np(pthread_self(), sizeof(set), &set) == 0) {
    processors_of_new_threads = set;
  }
}

void name_this_thread(const std::string& name) noexcept {
  char cut[16] = {};
  name.copy(cut, sizeof(cut) - 1);
  pthread_setname_np(pthread_self(), cut);
}

std::jthread start_thread(std::string name, std::function<void(std::stop_token)> body,
                          std::function<void(const Status&)> on_error) {
  own_threads.store(fork_era() + 1, std::memory_order_relaxed);
  try {
    return std::jthread([name, body = std::move(body), on_error = std::move(on_error),
                         processors = processors_of_new_threads](std::stop_token stop) noexcept {
      own_thread = forks() + 1;
      name_this_thread(name);
      if (processors) pthread_setaffinity_np(pthread_self(), sizeof(*processors), &*processors);
      try {
        body(std::move(stop));
      } catch (...) {
        on_error(Status::from_current_exception());
      }
    });
  } catch (const std::system_error& e) {
    throw SystemError(
        fmt::format("cannot start the thread {}: {}; the limit of processes (ulimit -u, "
                    "pids cgroup) may be reached",
                    name, e.what()));
  }
}

Thread::Thread(std::string name, std::function<void(const std::stop_token&)> body,
               std::function<void(const Status&)> on_error) {
  ThreadScheduler* scheduler = ThreadScheduler::current();
  if (scheduler == nullptr) {
    thread_ = start_thread(std::move(name), std::move(body), std::move(on_error));
    return;
  }
  task_ = scheduler->start(std::move(name), [body = std::move(body), on_error = std::move(on_error),
                                             stop = stop_.get_token()]() noexcept {
    try {
      body(stop);
    } catch (...) {
      on_error(Status::from_current_exception());
    }
  });
}

Thread::~Thread() {
  request_stop();
  if (task_ || thread_.joinable()) join();
}

void Thread::request_stop() noexcept {
  stop_.request_stop();
  thread_.request_stop();
}

void Thread::join() {
  if (!task_) return thread_.join();
  // Whoever stops a thread has ended what it waits for.
  ThreadScheduler::current()->wait([this] { return task_->over(); }, Deadline::never());
  task_.reset();
}

}  // namespace lockstep
