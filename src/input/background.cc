#include "lockstep/detail/background.h"

#include <chrono>
#include <deque>
#include <thread>
#include <vector>

#include "base/gate.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "tensor/operator_threads.h"

namespace lockstep::detail {

namespace {

/// No teams of threads for one operation: elements are small, the cores are the replicas', and the
/// threads of a team keep theirs busy while they wait.
constexpr int kThreadsPerOperation = 1;

/// That of the thread, if it belongs to a Feeder or a WorkerPool.
thread_local const std::stop_token* stop_of_thread = nullptr;

// Waits for user code (a map function, a read) may be as long as that takes; a line now and then
// tells who is waiting.
constexpr auto kReportEvery = std::chrono::seconds(30);

template <class Predicate>
void wait_with_reports(Gate& gate, const Predicate& holds, const char* what) {
  const std::stop_token stop = stop_of_thread != nullptr ? *stop_of_thread : std::stop_token();
  while (!gate.wait(holds, Deadline::after(kReportEvery), {}, stop)) {
    stop_if_asked();
    log_warning("input: {} since {} s", what, std::chrono::seconds(kReportEvery).count());
  }
}

void never_throws(const Status&) {}

}  // namespace

void stop_if_asked() {
  if (stop_of_thread != nullptr && stop_of_thread->stop_requested()) throw InputStopped();
}

struct Feeder::State {
  Gate gate;
  std::atomic<std::size_t> made = 0;
  std::atomic<std::size_t> taken = 0;
  std::atomic<bool> ended = false;
  std::jthread thread;
};

Feeder::Feeder(std::size_t capacity, std::function<bool()> produce)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.thread = start_thread(
      "ls-input",
      [&state, capacity, produce = std::move(produce)](const std::stop_token& stop) {
        tensor::set_operator_threads(kThreadsPerOperation);
        stop_of_thread = &stop;
        for (;;) {
          // Ended by the consumer, who takes an item or drops the feeder.
          const bool room =
              state.gate.wait([&] { return state.made.load() - state.taken.load() < capacity; },
                              Deadline::never(), {}, stop);
          if (!room || stop.stop_requested()) return;
          if (!produce()) break;
          state.made.fetch_add(1);
          state.gate.notify();
        }
        state.ended.store(true);
        state.gate.notify();
      },
      [&state](const Status& why) {  // out of memory, perhaps: the consumer must not wait for ever
        log_error("input: no more elements are made ahead: {}", why.message());
        state.ended.store(true);
        state.gate.notify();
      });
}

Feeder::~Feeder() = default;  // the thread is asked to stop, and joined, before the rest goes

bool Feeder::wait_for_item() {
  State& state = *state_;
  // `ended` first: what was made before it is still to be taken.
  bool ended = false;
  wait_with_reports(
      state.gate,
      [&] {
        ended = state.ended.load();
        return ended || state.made.load() != state.taken.load();
      },
      "the consumer waits for the next element");
  return state.made.load() != state.taken.load();
}

void Feeder::taken() noexcept {
  state_->taken.fetch_add(1);
  state_->gate.notify();
}

struct WorkerPool::State {
  Gate gate;
  Mutex mutex;
  std::deque<std::shared_ptr<Job>> waiting GUARDED_BY(mutex);
  std::atomic<std::size_t> count = 0;  // of waiting
  std::vector<std::jthread> threads;

  std::shared_ptr<Job> take() {
    const MutexLock lock(mutex);
    if (waiting.empty()) return nullptr;
    std::shared_ptr<Job> job = std::move(waiting.front());
    waiting.pop_front();
    count.fetch_sub(1);
    return job;
  }
};

WorkerPool::WorkerPool(int threads) : state_(std::make_unique<State>()) {
  State& state = *state_;
  for (int i = 0; i < threads; ++i) {
    state.threads.push_back(start_thread(
        "ls-map",
        [&state](const std::stop_token& stop) {
          tensor::set_operator_threads(kThreadsPerOperation);
          stop_of_thread = &stop;
          // Ended by a job or by the end of the pool.
          while (state.gate.wait([&] { return state.count.load() > 0; }, Deadline::never(), {},
                                 stop)) {
            if (stop.stop_requested()) return;
            if (const std::shared_ptr<Job> job = state.take()) {
              job->work_();
              job->done_.store(true);
              state.gate.notify();
            }
          }
        },
        never_throws));
  }
}

WorkerPool::~WorkerPool() {
  for (std::jthread& thread : state_->threads) thread.request_stop();
}

std::shared_ptr<WorkerPool::Job> WorkerPool::submit(std::function<void()> work) {
  auto job = std::make_shared<Job>(std::move(work));
  {
    const MutexLock lock(state_->mutex);
    state_->waiting.push_back(job);
    state_->count.fetch_add(1);
  }
  state_->gate.notify();
  return job;
}

void WorkerPool::wait_for(const Job& job) {
  wait_with_reports(
      state_->gate, [&] { return job.done_.load(); }, "a map function has been running");
}

}  // namespace lockstep::detail
