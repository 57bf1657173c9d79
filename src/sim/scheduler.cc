#include "sim/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <utility>

namespace lockstep::sim {
namespace {

/// What a system call costs, about. Without it a thread that ignores what is ready would stand still
/// in time for ever.
constexpr Duration kLeastWait = std::chrono::microseconds(1);
constexpr double kNetworkFirst = 0.1;
/// So long a thread that could go on may have to wait because the network moves first.
constexpr Duration kMostDelay = std::chrono::milliseconds(1);

class Ended final : public lockstep::ThreadScheduler::Task {
 public:
  [[nodiscard]] bool over() const noexcept override { return over_; }
  void set() noexcept { over_ = true; }

 private:
  bool over_ = false;
};

}  // namespace

struct Scheduler::Thread {
  Thread(std::string its_process, std::string its_name, std::function<void()> body)
      : process(std::move(its_process)), name(std::move(its_name)), fiber(std::move(body)) {}

  std::string process;
  std::string name;
  Fiber fiber;
  std::shared_ptr<Ended> task = std::make_shared<Ended>();
  std::optional<FunctionRef<bool()>> awaited;  // on its stack; empty: it has not begun
  Deadline deadline = Deadline::never();
  Time not_before{};
};

Scheduler::Scheduler(World& world) : world_(world), scope_(*this) {}
Scheduler::~Scheduler() = default;

std::shared_ptr<Scheduler::Task> Scheduler::start(std::string name, std::function<void()> body) {
  assert(current_thread_ != nullptr);
  auto& thread = *threads_.emplace_back(
      std::make_unique<Thread>(current_thread_->process, std::move(name), std::move(body)));
  return thread.task;
}

void Scheduler::spawn(const std::string& process, std::string name, std::function<void()> body) {
  threads_.push_back(std::make_unique<Thread>(process, std::move(name), std::move(body)));
}

bool Scheduler::wait(FunctionRef<bool()> ready, Deadline deadline) {
  Thread* thread = current_thread_;
  if (thread == nullptr) return run_until(ready, deadline);  // the driver's own wait
  thread->awaited = ready;
  thread->deadline = deadline;
  thread->not_before = std::min(world_.now() + kLeastWait, deadline.time());
  thread->fiber.suspend();
  return ready();
}

Time Scheduler::paused_until(const std::string& process) const {
  const auto found = paused_.find(process);
  return found == paused_.end() ? Time{} : found->second;
}

bool Scheduler::can_go_on(const Thread& thread) const {
  const Time now = world_.now();
  if (now < thread.not_before || (!paused_.empty() && now < paused_until(thread.process))) {
    return false;
  }
  return !thread.awaited || thread.deadline.passed(now) || (*thread.awaited)();
}

Time Scheduler::wakes_at(const Thread& thread) const {
  const Time least = std::max(thread.not_before, paused_until(thread.process));
  const bool waits_for_time = thread.awaited && !(*thread.awaited)();
  return waits_for_time ? std::max(least, thread.deadline.time()) : least;
}

void Scheduler::resume(Thread& thread) {
  ++turns_;
  current_thread_ = &thread;
  thread.fiber.resume();
  current_thread_ = nullptr;
  if (!thread.fiber.over()) return;
  thread.task->set();
  std::erase_if(threads_, [&](const auto& known) { return known.get() == &thread; });
}

void Scheduler::run_some(std::vector<Thread*>& ready, FunctionRef<bool()> holds) {
  // Some of them, in any order: the others are slow this time.
  std::size_t turns = 1 + world_.random().below(ready.size());
  for (; turns > 0 && !holds(); --turns) {
    std::swap(ready[world_.random().below(ready.size())], ready.back());
    Thread& next = *ready.back();
    ready.pop_back();
    if (can_go_on(next)) resume(next);
  }
}

bool Scheduler::advance(Deadline deadline) {
  Time next = world_.next();
  for (const auto& thread : threads_) next = std::min(next, wakes_at(*thread));
  if (next == Time::max() || next > deadline.time()) return false;
  if (world_.next() <= next) return world_.step();
  world_.run_until([] { return false; }, Deadline::at(next));
  return true;
}

bool Scheduler::run_until(FunctionRef<bool()> holds, Deadline deadline) {
  for (;;) {
    if (holds()) return true;
    if (deadline.passed(world_.now())) return false;
    ready_.clear();
    for (const auto& thread : threads_) {
      if (can_go_on(*thread)) ready_.push_back(thread.get());
    }
    const Time soon = std::min(deadline.time(), world_.now() + kMostDelay);
    const bool network_first = world_.next() <= soon && world_.random().chance(kNetworkFirst);
    if (ready_.empty()) {
      if (!advance(deadline)) break;
    } else if (network_first) {
      world_.step();
    } else {
      run_some(ready_, holds);
    }
  }
  if (!deadline.is_never()) world_.run_until([] { return false; }, deadline);
  return false;
}

std::string Scheduler::describe_running() const {
  std::string text;
  for (const auto& thread : threads_) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", thread->process, thread->name);
  }
  return text;
}

}  // namespace lockstep::sim
