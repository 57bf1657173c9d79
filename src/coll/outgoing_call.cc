#include "coll/outgoing_call.h"

#include <chrono>
#include <utility>

#include "coll/greeting.h"

namespace lockstep::coll {
namespace {

constexpr auto kLook = std::chrono::milliseconds(1);

}  // namespace

void OutgoingCall::place(std::unique_ptr<sys::Connection> connection, Time now) {
  give_up();
  connection_ = std::move(connection);
  since_ = now;
}

bool OutgoingCall::is_unanswered(Time now) const noexcept {
  return connection_ && !connection_->underlying().is_open() && now > since_ + kUnanswered;
}

Time OutgoingCall::watch(Time now) {
  if (!connection_) return Time::max();
  sys::Connection& socket = connection_->underlying();
  if (!socket.ready()) return now + kLook;
  if (socket.is_open()) {
    poller_.watch(*connection_, sys::Interest::read);
    return Time::max();
  }
  poller_.watch(*connection_, sys::Interest::write);
  return since_ + kUnanswered + kLook;
}

void OutgoingCall::give_up() noexcept {
  if (connection_) poller_.forget(*connection_);
  connection_.reset();
}

std::unique_ptr<sys::Connection> OutgoingCall::take() noexcept {
  if (connection_) poller_.forget(*connection_);
  return std::move(connection_);
}

}  // namespace lockstep::coll
