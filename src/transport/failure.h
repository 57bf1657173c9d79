// Failure: why a generation ended. Sticky: the first cause wins, later ones are ignored, nothing
// clears it. Any thread.
//
// Ranks that share no memory must first agree on the cause: once a control plane has called
// hold_for_verdict(), report() only proposes, and the control plane answers with set() on every
// rank. A rank that cannot wait for the answer takes its own proposal: settle_alone().
#pragma once

#include <atomic>
#include <functional>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"

namespace lockstep::transport {

class Failure {
 public:
  /// Who is told, from the thread in which it happens. Set before there is more than one.
  struct Listener {
    std::function<void()> reported;  // a proposal waits for the control plane
    std::function<void()> raised;    // the generation has ended
  };
  void listen(Listener listener) { listener_ = std::move(listener); }

  /// True if this was the first cause.
  bool set(const Status& why) noexcept {
    {
      const MutexLock lock(mutex_);
      if (!raise(why)) return false;
    }
    if (listener_.raised) listener_.raised();
    return true;
  }
  /// What happened here: ends the generation, or proposes to, if the ranks have to agree first.
  void report(const Status& why) noexcept {
    bool held = false;
    {
      const MutexLock lock(mutex_);
      held = held_;
      if (held && !proposed_.load(std::memory_order_relaxed)) keep(proposal_, why);
      if (held) proposed_.store(true, std::memory_order_release);
    }
    if (!held) {
      set(why);
    } else if (listener_.reported) {
      listener_.reported();
    }
  }
  void hold_for_verdict() noexcept {
    const MutexLock lock(mutex_);
    held_ = true;
  }
  /// The verdict takes longer than this rank can wait: ends the generation here with what was
  /// proposed here first. Nothing happens if nothing was, or if it has ended.
  void settle_alone() noexcept {
    {
      const MutexLock lock(mutex_);
      if (!proposed_.load(std::memory_order_relaxed) || !raise(proposal_)) return;
    }
    if (listener_.raised) listener_.raised();
  }
  [[nodiscard]] bool proposed() const noexcept { return proposed_.load(std::memory_order_acquire); }
  /// The first cause reported here; ok if there is none.
  [[nodiscard]] Status proposal() const {
    const MutexLock lock(mutex_);
    return proposal_;
  }

  /// Sequentially consistent, as set() is: links order it against what they set themselves.
  [[nodiscard]] bool raised() const noexcept { return raised_.load(); }
  /// Ok while nothing has failed.
  [[nodiscard]] Status cause() const {
    const MutexLock lock(mutex_);
    return cause_;
  }

 private:
  bool raise(const Status& why) noexcept REQUIRES(mutex_) {
    if (raised_.load(std::memory_order_relaxed)) return false;
    keep(cause_, why);
    raised_.store(true);
    return true;
  }
  /// A cause without its words is better than none.
  static void keep(Status& place, const Status& why) noexcept {
    try {
      place = why;
    } catch (...) {
      place = Status(why.kind(), why.code(), {});
    }
  }

  Listener listener_;
  std::atomic<bool> raised_ = false;
  mutable Mutex mutex_;
  Status cause_ GUARDED_BY(mutex_);
  std::atomic<bool> proposed_ = false;
  Status proposal_ GUARDED_BY(mutex_);
  bool held_ GUARDED_BY(mutex_) = false;
};

}  // namespace lockstep::transport
