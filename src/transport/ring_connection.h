// RingConnection: a byte stream between two processes of a host. The bytes go through shared
// memory, one channel each way; a Unix socket between the two wakes who sleeps, and tells when the
// other end is gone.
//
// Over the socket go wake-ups only: bytes without a meaning, and only to a peer that sleeps. What a
// peer writes into the shared memory can spoil the stream, as it could by sending garbage, but not
// lead us to other memory (ring.h).
//
//   RingConnection connection(std::move(socket), Channel(mine, capacity), [&] { return theirs();
//   });
//
// Thread rule: one thread at a time uses an end.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "sys/net.h"
#include "transport/channel.h"

namespace lockstep::transport {

class RingConnection final : public sys::Connection {
 public:
  /// The channel that the peer writes to, once it has made it. Must not throw.
  using Find = std::function<std::optional<Channel>()>;

  /// A channel of which only the first `usable` bytes have memory yet.
  struct Growth {
    std::size_t usable = 0;
    std::size_t capacity = 0;
    /// Gives memory to the first so many. SystemError if it is short.
    std::function<void(std::size_t usable)> grow;
  };

  RingConnection(std::unique_ptr<sys::Connection> socket, Channel outgoing, Find incoming,
                 Growth growth);
  /// All of the channel has memory.
  RingConnection(std::unique_ptr<sys::Connection> socket, Channel outgoing, Find incoming)
      : RingConnection(std::move(socket), outgoing, std::move(incoming), Growth()) {}

  sys::Transfer read(std::span<std::byte> into) noexcept override;
  sys::Transfer write(std::span<const std::byte> from) noexcept override;
  sys::Transfer write_both(std::span<const std::byte> first,
                           std::span<const std::byte> second) noexcept override;
  void shutdown_write() noexcept override;
  [[nodiscard]] Status error() const override;
  [[nodiscard]] std::string peer() const override { return socket_->peer(); }
  [[nodiscard]] bool is_open() const noexcept override { return socket_->is_open(); }
  [[nodiscard]] std::optional<sys::Interest> before_wait(sys::Interest wanted) noexcept override;
  [[nodiscard]] sys::Connection& underlying() noexcept override { return socket_->underlying(); }

 private:
  /// True once the peer's channel is there.
  bool found() noexcept;
  /// Whether there is memory for so many bytes more in the channel, as far as they fit.
  bool have_memory(std::size_t more) noexcept;
  std::size_t take(std::span<std::byte> into) noexcept;
  void wake() noexcept;
  /// Takes the wake-ups that have come and learns whether the peer is gone.
  void look() noexcept;
  /// The same for somebody who asks again and again: rarely.
  void look_at_times() noexcept;

  std::unique_ptr<sys::Connection> socket_;
  Channel outgoing_;
  Find find_;
  Growth growth_;
  Status shortage_;  // of memory for the channel
  std::optional<Channel> incoming_;
  sys::Transfer::State socket_state_ = sys::Transfer::State::open;
  bool shut_ = false;  // shutdown_write() was called
  bool deaf_ = false;  // a write was refused
  unsigned idle_ = 0;  // transfers that found nothing
};

}  // namespace lockstep::transport
