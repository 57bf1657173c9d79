#include "transport/ring_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "sys/os_error.h"
#include "transport/own_failure.h"

namespace lockstep::transport {
namespace {

using sys::Interest;
using sys::Transfer;
using State = sys::Transfer::State;

/// Long transfers go piece by piece: the other side works on one while we copy the next.
constexpr std::size_t kPiece = std::size_t{64} << 10;
/// A look at the socket is a system call: one in so many idle transfers.
constexpr unsigned kLookEvery = 64;

}  // namespace

RingConnection::RingConnection(std::unique_ptr<sys::Connection> socket, Channel outgoing,
                               Find incoming, Growth growth)
    : socket_(std::move(socket)),
      outgoing_(outgoing),
      find_(std::move(incoming)),
      growth_(std::move(growth)) {}

bool RingConnection::have_memory(std::size_t more) noexcept {
  if (growth_.usable == growth_.capacity) return true;
  try {
    const std::size_t usable = usable_for(outgoing_.used(more), growth_.usable, growth_.capacity);
    if (usable > growth_.usable) growth_.grow(usable);
    growth_.usable = usable;
    return true;
  } catch (...) {
    shortage_ = current_failure();
    return false;
  }
}

bool RingConnection::found() noexcept {
  if (!incoming_) incoming_ = find_();
  return incoming_.has_value();
}

void RingConnection::wake() noexcept {
  // Does not fail for want of room: who sleeps has taken all earlier wake-ups.
  const std::byte call{};
  (void)socket_->write({&call, 1});
}

void RingConnection::look() noexcept {
  std::array<std::byte, 64> calls;
  const State state = socket_->read(calls).state;
  if (state != State::open) socket_state_ = state;
}

void RingConnection::look_at_times() noexcept {
  if (++idle_ % kLookEvery == 0) look();
}

std::size_t RingConnection::take(std::span<std::byte> into) noexcept {
  std::size_t moved = 0;
  while (moved < into.size() && found()) {
    const std::size_t now =
        incoming_->read(into.subspan(moved, std::min(into.size() - moved, kPiece)));
    if (now == 0) break;
    moved += now;
    if (incoming_->rouse_writer()) wake();
  }
  return moved;
}

Transfer RingConnection::read(std::span<std::byte> into) noexcept {
  if (into.empty()) return {};
  if (const std::size_t moved = take(into); moved > 0) return {moved, State::open};
  look_at_times();
  State end = socket_state_;
  if (incoming_ && incoming_->ended()) end = State::closed;
  if (end == State::open) return {};
  // What was written before the end is there by now.
  const std::size_t moved = take(into);
  return {moved, moved > 0 ? State::open : end};
}

Transfer RingConnection::write(std::span<const std::byte> from) noexcept {
  return write_both({}, from);
}

Transfer RingConnection::write_both(std::span<const std::byte> first,
                                    std::span<const std::byte> second) noexcept {
  if (shut_ || socket_state_ != State::open || !have_memory(first.size() + second.size())) {
    deaf_ = true;
    return {0, State::broken};
  }
  std::size_t moved = outgoing_.write(first);
  const bool goes_on = moved == first.size();
  while (goes_on && !second.empty()) {
    const std::size_t now = outgoing_.write(second.first(std::min(second.size(), kPiece)));
    if (now == 0) break;
    moved += now;
    second = second.subspan(now);
    if (outgoing_.rouse_reader()) wake();
  }
  if (moved == 0) {
    look_at_times();
  } else if (moved <= first.size() && outgoing_.rouse_reader()) {
    wake();  // for a header by itself only if nothing could follow
  }
  return {moved, State::open};
}

void RingConnection::shutdown_write() noexcept {
  if (std::exchange(shut_, true)) return;
  outgoing_.end();
  if (outgoing_.rouse_reader()) wake();
}

Status RingConnection::error() const {
  if (!shortage_.ok()) return shortage_;
  if (Status broken = socket_->error(); !broken.ok()) return broken;
  return deaf_ ? sys::os_error(fmt::format("connection to {}", peer()), EPIPE) : Status();
}

std::optional<Interest> RingConnection::before_wait(Interest wanted) noexcept {
  // Wake-ups that stay in the socket would keep the poller awake.
  look();
  if (socket_state_ != State::open) return std::nullopt;  // the next transfer tells
  bool possible = false;
  if (wanted != Interest::write && found()) possible = !incoming_->reader_may_sleep();
  if (wanted != Interest::read) possible = !outgoing_.writer_may_sleep() || possible;
  if (possible) return std::nullopt;
  return Interest::read;
}

}  // namespace lockstep::transport
