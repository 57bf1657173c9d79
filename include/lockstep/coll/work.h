// Work: an operation under way. wait() ends when it is over and throws if it failed.
//
//   Work work = group.start_all_reduce(Op::sum, std::span(gradient));
//   compute_something_else();
//   work.wait();                                   // gradient holds the sum
//
// The buffers belong to the operation until wait() has returned or thrown. Copies refer to the same
// operation. Any thread may wait. Dropping the last Work does not stop the operation; a failure
// then shows at the next call of its session.
#pragma once

#include <chrono>
#include <memory>

namespace lockstep::coll {

class [[nodiscard]] Work {
 public:
  /// Blocks until the operation is over; its own deadline bounds the wait.
  void wait();
  /// False if it is not over after `timeout`; the operation goes on.
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds timeout);
  /// Whether wait() would return (or throw) at once.
  [[nodiscard]] bool done() const noexcept;

  struct Shared;
  explicit Work(std::shared_ptr<Shared> shared) noexcept : shared_(std::move(shared)) {}

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace lockstep::coll
