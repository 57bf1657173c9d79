// Fiber: a function with a stack of its own that runs on the thread of the one who resumes it, until
// it is over or gives the turn back.
//
//   Fiber fiber([&] { work(); fiber.suspend(); work(); });
//   fiber.resume();                                  // up to suspend()
//   fiber.resume();                                  // to the end: over()
//
// The function must not let an exception out; inside it exceptions work as everywhere, also across
// suspend(). A fiber destroyed before it is over is dropped as it stands: its stack is given back
// and what lay on it is never destroyed. Thread rule: one thread.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>

namespace lockstep::sim {

class Fiber {
 public:
  /// SystemError if there is no memory for the stack.
  explicit Fiber(std::function<void()> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void resume();
  /// Only inside the fiber.
  void suspend();
  [[nodiscard]] bool over() const noexcept { return over_; }

 private:
  static void enter(unsigned low, unsigned high);
  void run();
  void leave_to_resumer(bool for_ever);

  std::function<void()> body_;
  void* memory_ = nullptr;
  ucontext_t own_{};
  ucontext_t resumer_{};
  // What the C++ runtime knows of exceptions being handled, which is the thread's.
  struct Exceptions {
    void* caught = nullptr;
    unsigned uncaught = 0;
  };
  static Exceptions exchange_exceptions(const Exceptions& with);
  Exceptions exceptions_;
  bool over_ = false;
  // For sanitizers, which follow stacks.
  void* fake_stack_ = nullptr;
  const void* resumer_stack_ = nullptr;
  std::size_t resumer_stack_bytes_ = 0;
  void* own_shadow_ = nullptr;
  void* resumer_shadow_ = nullptr;
};

}  // namespace lockstep::sim
