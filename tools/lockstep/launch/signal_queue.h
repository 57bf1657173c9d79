// SignalQueue: signals to the launcher as events of its loop instead of interruptions.
//
// Blocks them for the calling thread while it lives; a signal that was ignored at the start (nohup)
// stays ignored. Children started meanwhile have default signals, see sys/proc.h.
#pragma once

#include <signal.h>

#include <optional>

#include "sys/descriptor.h"

namespace lockstep::tool {

class SignalQueue {
 public:
  /// Hangup, interrupt, terminate, user1, user2, and the terminal's stop.
  SignalQueue();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  /// Readable when there is a signal.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }
  /// The next signal's number.
  std::optional<int> next();

 private:
  sigset_t before_{};
  sys::Descriptor descriptor_;
};

}  // namespace lockstep::tool
