// Channel: one simulated connection, two directions of bytes between two ends.
//
// A direction keeps what was written until the other end reads it, in one bounded buffer. Segments
// say when the next bytes (or the end, or a reset) arrive; at most one event per direction is
// scheduled, whatever its length. Private to sim::Network, which owns channels and routes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "sim/world.h"
#include "sys/net.h"

namespace lockstep::sim {

/// How bytes travel in one direction.
struct LinkOptions {
  Duration delay = std::chrono::microseconds(20);
  Duration jitter = Duration::zero();  // seeded extra delay, up to this; order is kept
  std::size_t piece = 0;               // each arrival brings 1 to `piece` bytes; 0: all at once
  std::size_t buffer = std::size_t{64} << 10;  // bytes written and not yet read
  std::uint64_t bytes_per_second = 0;          // 0: no limit
};

namespace detail {

/// A process as the network sees it.
struct Peer {
  std::string name;
  std::string host;
  bool alive = true;
  bool silent = false;
  std::uint64_t activity = 0;  // grows when something happens that the process could notice
};

/// What happens to bytes from one process to another.
struct Route {
  LinkOptions options;
  const Peer* from = nullptr;
  const Peer* to = nullptr;
  bool silent = false;

  [[nodiscard]] bool delivers() const noexcept {
    return !silent && (from == to || (!from->silent && !to->silent));
  }
};

enum class Break : unsigned char { none, refused, reset, timed_out, cut, killed, misuse };

/// Which end of a channel: the one that connected or the one that accepted.
enum class Side : unsigned char { caller, callee };

constexpr Side other(Side side) noexcept {
  return side == Side::caller ? Side::callee : Side::caller;
}

class Channel {
 public:
  struct Binding {
    Peer* peer;
    Route* route;         // from this end to the other
    std::string address;  // of this end, as the other one prints it
  };
  /// `number` tells channels apart in the trace.
  Channel(World& world, std::uint64_t number, Binding caller, Binding callee);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // What the Connection at an end does.
  sys::Transfer read(Side side, std::span<std::byte> into) noexcept;
  sys::Transfer write(Side side, std::span<const std::byte> from) noexcept;
  void shutdown_write(Side side);
  void close(Side side);
  [[nodiscard]] Status error(Side side) const;
  [[nodiscard]] const std::string& peer_address(Side side) const;
  [[nodiscard]] sys::Delivery delivery(Side side) const noexcept;
  [[nodiscard]] bool readable(Side side) const noexcept;
  [[nodiscard]] bool writable(Side side) const noexcept;

  // What the network does to it.
  void bind(Side side, Binding binding);
  void establish(Side side);
  void break_end(Side side, Break why);
  /// The end's process is gone: the other end learns it as from a closing kernel.
  void abandon(Side side);
  /// Deliveries held back by a silent route go on.
  void resume();
  [[nodiscard]] Peer& process(Side side) noexcept { return *end(side).bound.peer; }
  [[nodiscard]] bool is_open(Side side) const noexcept;
  /// The other end has answered, as far as this one knows.
  [[nodiscard]] bool established(Side side) const noexcept { return end(side).established; }

 private:
  struct Segment {
    enum class Kind : unsigned char { data, end, reset };
    std::uint64_t upto;  // offset after the last byte
    Time arrival;
    Kind kind;
  };

  struct End {
    Binding bound;
    bool established = false;
    bool held = true;  // somebody still has the Connection
    Break broken = Break::none;

    // The direction from this end to the other. Offsets count from the first byte ever written:
    // consumed <= delivered <= written.
    std::vector<std::byte> bytes;  // [consumed - trim, written)
    std::uint64_t trim = 0;        // consumed bytes still at the front of `bytes`
    std::uint64_t written = 0;
    std::uint64_t delivered = 0;
    std::uint64_t consumed = 0;
    std::uint64_t acknowledged = 0;  // of `delivered`, as far as this end knows
    std::uint64_t arrivals = 0;      // at the other end
    std::vector<Segment> in_flight;
    std::size_t first = 0;  // of in_flight
    Time last_arrival{};
    Time line_free{};  // when a limited line can take the next byte
    bool scheduled = false;
    bool end_sent = false;
    bool end_arrived = false;
  };

  [[nodiscard]] End& end(Side side) noexcept { return ends_[static_cast<std::size_t>(side)]; }
  [[nodiscard]] const End& end(Side side) const noexcept {
    return ends_[static_cast<std::size_t>(side)];
  }
  static void consume(End& sender, std::size_t bytes) noexcept;
  void send(Side from, Segment::Kind kind, std::size_t bytes);
  void send_reset(Side from);
  void drop_in_flight(Side from);
  void schedule_arrival(Side from, Time at);
  void arrive(Side from);
  /// The other end says what has arrived there, if the way back delivers.
  void acknowledge(Side from) noexcept;
  void touch(Side side) noexcept { ++end(side).bound.peer->activity; }

  World& world_;
  std::uint64_t number_;
  std::array<End, 2> ends_;
};

}  // namespace detail
}  // namespace lockstep::sim
