// ThreadScheduler: gives the threads of a simulation their turns and their time. In a real process
// there is none, and the operating system does both.
//
// A simulation sets the scheduler of its own thread for as long as it runs. Then, on that thread,
// MonotonicClock, Gate and Thread ask the scheduler, so the classes that use them run unchanged in
// virtual time. Only slow paths look for it: reading the clock, going to sleep, waking sleepers,
// starting a thread.
//
//   const ThreadScheduler::Scope scope(scheduler);   // until the end of the block
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/function_ref.h"

namespace lockstep {

class ThreadScheduler : public Clock {
 public:
  /// A thread that the scheduler runs.
  class Task {
   public:
    Task() = default;
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;
    virtual ~Task() = default;
    [[nodiscard]] virtual bool over() const noexcept = 0;
  };

  /// Lets other threads run. True once `ready` holds, false if the deadline came first. `ready` is
  /// asked on any thread of the simulation and must neither block nor change anything.
  virtual bool wait(FunctionRef<bool()> ready, Deadline deadline) = 0;
  /// Starts a thread of the process to which the calling one belongs. The scheduler keeps it until
  /// it ends.
  virtual std::shared_ptr<Task> start(std::string name, std::function<void()> body) = 0;

  /// Of the calling thread; null: the operating system.
  static ThreadScheduler* current() noexcept { return current_; }

  class Scope {
   public:
    explicit Scope(ThreadScheduler& scheduler) noexcept;
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    ThreadScheduler* before_;
  };

 private:
  static thread_local constinit ThreadScheduler* current_;
};

}  // namespace lockstep
