// Work of a pipeline on threads of its own: a feeder that makes elements ahead of their consumer,
// and a pool that works on several at once. Neither uses any time while its consumer is slow.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

namespace lockstep::detail {

/// Thrown on a thread of a Feeder or of a WorkerPool that is being destroyed: nobody takes the
/// element that the thread is making. It never reaches a consumer.
struct InputStopped {};
/// Throws InputStopped on such a thread. Every source of elements calls it before each element, so
/// whatever a stage does with them ends within one element, also a search without an end.
void stop_if_asked();

/// Calls produce() on a thread of its own, ahead of the consumer by at most `capacity` items.
/// produce() keeps the item itself, must not throw, and returns false when there are no more.
///
///   while (feeder.wait_for_item()) { take the item; feeder.taken(); }
class Feeder {
 public:
  Feeder(std::size_t capacity, std::function<bool()> produce);
  /// Ends within the element that is being made: see stop_if_asked().
  ~Feeder();
  Feeder(const Feeder&) = delete;
  Feeder& operator=(const Feeder&) = delete;

  /// False at the end. One thread at a time. Throws InputStopped.
  bool wait_for_item();
  void taken() noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Runs jobs on some threads, in the order they were submitted. Jobs must not throw.
class WorkerPool {
 public:
  /// One job: done once it has run.
  class Job {
   public:
    explicit Job(std::function<void()> work) : work_(std::move(work)) {}

   private:
    friend class WorkerPool;
    std::function<void()> work_;
    std::atomic<bool> done_ = false;
  };

  explicit WorkerPool(int threads);
  /// Jobs that have not begun never do.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  [[nodiscard]] std::shared_ptr<Job> submit(std::function<void()> work);
  /// Throws InputStopped.
  void wait_for(const Job& job);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::detail
