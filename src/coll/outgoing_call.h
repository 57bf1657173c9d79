// OutgoingCall: a connection that is being made, watched by a poller from the moment it is placed
// until it is taken or given up.
//
// The poller wakes when the call gets on: the peer has taken it, or has sent the next part of a
// handshake or an answer. A call that the system cannot watch (a Unix socket whose queue is full)
// has to be looked at again: watch() says when.
//
// Borrows the poller. One thread.
#pragma once

#include <memory>

#include "base/clock.h"
#include "sys/net.h"

namespace lockstep::coll {

class OutgoingCall {
 public:
  explicit OutgoingCall(sys::Poller& poller) noexcept : poller_(poller) {}
  ~OutgoingCall() { give_up(); }
  OutgoingCall(const OutgoingCall&) = delete;
  OutgoingCall& operator=(const OutgoingCall&) = delete;

  /// Null: there is no call yet, or none any more.
  [[nodiscard]] sys::Connection* connection() const noexcept { return connection_.get(); }
  [[nodiscard]] bool placed() const noexcept { return connection_ != nullptr; }
  /// When the call was placed last; the clock's zero before the first one.
  [[nodiscard]] Time since() const noexcept { return since_; }
  /// A null connection is a call that came to nothing at once; it counts as placed for since().
  void place(std::unique_ptr<sys::Connection> connection, Time now);
  /// Nobody has answered for kUnanswered.
  [[nodiscard]] bool is_unanswered(Time now) const noexcept;
  /// Before a wait: makes the poller wake when the call gets on. Returns when to look at it if the
  /// poller does not wake.
  [[nodiscard]] Time watch(Time now);
  void give_up() noexcept;
  /// The connection, no longer watched.
  [[nodiscard]] std::unique_ptr<sys::Connection> take() noexcept;

 private:
  sys::Poller& poller_;
  std::unique_ptr<sys::Connection> connection_;
  Time since_{};
};

}  // namespace lockstep::coll
