// Scheduler: runs the threads of simulated processes in virtual time, one at a time.
//
// Each thread is a fiber. It runs until it waits (Gate, Poller, Thread::join); then the scheduler
// picks, by the world's seed, which of the threads that can go on runs next, or lets the network
// move first. Time stands still while a thread runs, and every wait takes a microsecond at least.
// What two threads do between two waits is not interleaved.
//
//   World world(seed);
//   Scheduler scheduler(world);
//   scheduler.spawn("host0", "main", [&] { serve(network.at("host0")); });
//   scheduler.run_until([&] { return served; }, Deadline::after(world, 60s));
//
// Ownership: keeps the threads until they are over; those that are not are dropped with it, and
// what lies on their stacks is never destroyed. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_scheduler.h"
#include "sim/fiber.h"
#include "sim/world.h"

namespace lockstep::sim {

class Scheduler final : public lockstep::ThreadScheduler {
 public:
  explicit Scheduler(World& world);
  ~Scheduler() override;

  [[nodiscard]] Time now() const noexcept override { return world_.now(); }
  bool wait(FunctionRef<bool()> ready, Deadline deadline) override;
  std::shared_ptr<Task> start(std::string name, std::function<void()> body) override;

  /// Starts a thread of that process. Only the driver may, outside the threads.
  void spawn(const std::string& process, std::string name, std::function<void()> body);
  /// Threads of the process get no turn until then.
  void pause(const std::string& process, Time until) { paused_[process] = until; }

  /// Runs threads and world until the predicate holds (true), or the deadline has come or nothing is
  /// left to happen (false).
  bool run_until(FunctionRef<bool()> holds, Deadline deadline);

  /// Threads that are not over, of one process or of all: "host0 main, host0 ls-control-0".
  [[nodiscard]] std::size_t running() const noexcept { return threads_.size(); }
  [[nodiscard]] std::string describe_running() const;
  [[nodiscard]] std::uint64_t turns() const noexcept { return turns_; }

 private:
  struct Thread;

  /// The thread could go on now.
  [[nodiscard]] bool can_go_on(const Thread& thread) const;
  /// When the thread can go on without anything else happening.
  [[nodiscard]] Time wakes_at(const Thread& thread) const;
  [[nodiscard]] Time paused_until(const std::string& process) const;
  void run_some(std::vector<Thread*>& ready, FunctionRef<bool()> holds);
  void resume(Thread& thread);
  /// To the next thing that happens by itself; false if there is none up to the deadline.
  bool advance(Deadline deadline);

  World& world_;
  Scope scope_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<Thread*> ready_;
  Thread* current_thread_ = nullptr;
  std::map<std::string, Time> paused_;
  std::uint64_t turns_ = 0;
};

}  // namespace lockstep::sim
