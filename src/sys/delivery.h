// Delivery: what has become of the bytes that were written to a TCP connection, as the kernel knows
// it. Packets that are lost without a word leave no other trace: no error, and no end of the stream.
#pragma once

#include <cstdint>
#include <optional>

namespace lockstep::sys {

struct Delivery {
  bool waits = false;              // bytes were sent and are not acknowledged
  std::uint64_t acknowledged = 0;  // bytes, ever
  // Packets that have arrived from the peer, ever. A peer that gets nothing sends no answers.
  std::uint64_t answers = 0;  // without bytes
  std::uint64_t data = 0;     // with bytes, new ones or again
};

/// Empty if it is no TCP socket.
std::optional<Delivery> delivery_of(int fd) noexcept;

}  // namespace lockstep::sys
