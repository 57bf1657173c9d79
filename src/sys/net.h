// Network: byte streams between processes, non-blocking throughout.
//
// A Connection moves what it can now and says so; a Poller waits until something can move.
// Addresses are "host:port", "[v6]:port" or "unix:path". The simulated network in sim/ implements
// the same interface.
//
//   auto connection = network.connect("10.0.0.7:4000");
//   auto poller = network.poller();
//   poller->watch(*connection, Poller::Interest::write);
//   while (poller->wait(deadline)) {
//     const Transfer moved = connection->write(bytes);   // 0 bytes and open: not yet
//     ...
//   }
//
// Thread rule: one thread at a time uses an object; Poller::wake() may be called from any.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/deadline.h"
#include "base/status.h"
#include "sys/delivery.h"

namespace lockstep::sys {

/// What a transfer did: moved bytes, would block (bytes == 0, open), or the stream is over.
struct Transfer {
  enum class State : unsigned char {
    open,    // `bytes` moved, maybe none
    closed,  // the peer closed its direction in good order; reads only
    broken,  // reset, timed out, ...: see Connection::error()
  };
  std::size_t bytes = 0;
  State state = State::open;
};

/// What a poller is to wait for.
enum class Interest : unsigned char { none, read, write, read_write };

class Connection {
 public:
  /// Closes. What was written still goes out; if bytes have arrived that nobody read, the peer may
  /// see a reset instead of them.
  virtual ~Connection() = default;
  /// What arrived before the end or a break is read first. Broken is final. An empty span moves
  /// nothing and tells nothing.
  virtual Transfer read(std::span<std::byte> into) noexcept = 0;
  virtual Transfer write(std::span<const std::byte> from) noexcept = 0;
  /// Two pieces as one, in one go where the connection can. `bytes` counts both.
  virtual Transfer write_both(std::span<const std::byte> first,
                              std::span<const std::byte> second) noexcept {
    const Transfer moved = write(first);
    if (moved.bytes < first.size() || moved.state != Transfer::State::open) return moved;
    const Transfer more = write(second);
    return {moved.bytes + more.bytes, more.state};
  }
  /// Half-close: the peer reads the end after what was written. No write may follow. While still
  /// connecting, it takes effect at the first transfer after.
  virtual void shutdown_write() noexcept = 0;
  /// Why the stream is broken; ok otherwise.
  [[nodiscard]] virtual Status error() const = 0;
  /// The peer's address, for messages.
  [[nodiscard]] virtual std::string peer() const = 0;
  /// False until the peer has answered the call (an accepted connection: at once).
  [[nodiscard]] virtual bool is_open() const noexcept { return true; }
  /// The numeric host under which the peer sees this end, in brackets if it has colons; empty if it
  /// has none.
  [[nodiscard]] virtual std::string local_host() const { return {}; }
  /// From now on the end of the process that made the other end is the end of the stream, also if
  /// a child of that process holds the socket open; what was written before is read first. Pollers
  /// that start to watch later notice it. Nothing changes where the system cannot tell: between
  /// machines, or on a kernel without pidfds.
  virtual void watch_peer() noexcept {}
  /// What has become of the bytes written; empty where that is not known, or nothing gets lost.
  [[nodiscard]] virtual std::optional<Delivery> delivery() const noexcept { return std::nullopt; }
  /// False while the connection is still to be made: there is nothing a poller could watch.
  [[nodiscard]] virtual bool ready() const noexcept { return true; }
  /// Before a poller waits: what it has to watch of this connection so that it wakes when `wanted`
  /// is possible; nothing: it is possible now. Not asked for `none`.
  [[nodiscard]] virtual std::optional<Interest> before_wait(Interest wanted) noexcept {
    return wanted;
  }
  /// The network's own connection, which pollers watch: this one, or the one a wrapper (TLS) wraps.
  [[nodiscard]] virtual Connection& underlying() noexcept { return *this; }
};

class Listener {
 public:
  virtual ~Listener() = default;
  /// Null if nobody is waiting now. SystemError if the process cannot have another connection.
  virtual std::unique_ptr<Connection> accept() = 0;
  /// The address bound, with the port the system chose if 0 was asked for.
  [[nodiscard]] virtual std::string address() const = 0;
  /// Only this machine can reach it, whatever the name in the address promises.
  [[nodiscard]] virtual bool is_loopback() const noexcept { return false; }
};

/// Waits for readiness of a set of connections and listeners.
class Poller {
 public:
  using Interest = sys::Interest;
  virtual ~Poller() = default;
  /// Adds the connection or changes the interest in it; none keeps it quiet.
  virtual void watch(Connection& connection, Interest interest) = 0;
  virtual void watch(Listener& listener) = 0;
  /// Must be called before a watched object is destroyed.
  virtual void forget(Connection& connection) noexcept = 0;
  virtual void forget(Listener& listener) noexcept = 0;
  /// True if something watched may be ready or wake() was called; false at the deadline.
  virtual bool wait(Deadline deadline) = 0;
  /// The connections that the last wait() found ready, as they were given to watch(). If others are
  /// ready too, the next wait() finds them. Good until the next wait() or forget().
  [[nodiscard]] virtual std::span<Connection* const> ready() const noexcept = 0;
  /// Ends a wait from any thread.
  virtual void wake() noexcept = 0;
};

class Network {
 public:
  virtual ~Network() = default;
  /// ConfigError for a malformed address, SystemError naming address and cause (port taken, ...)
  /// otherwise.
  virtual std::unique_ptr<Listener> listen(const std::string& address) = 0;
  /// Starts connecting; the connection reports a refusal as broken at its first transfer.
  virtual std::unique_ptr<Connection> connect(const std::string& address) = 0;
  virtual std::unique_ptr<Poller> poller() = 0;
};

}  // namespace lockstep::sys
