// Which congestion control a TCP connection uses.
//
// Collectives write in bursts and wait in between. BBR takes the pauses for the path's speed and
// spreads the next burst over time, which costs two thirds of the throughput or more on a local
// network; there loss is repaired within microseconds, and plain algorithms do better. Farther away
// the system's choice stands, and wherever it is not BBR.
#pragma once

#include <chrono>
#include <string>

#include "base/clock.h"

namespace lockstep::sys {

/// For a new socket, before it connects or listens: what once paced goes on pacing.
void choose_bursts(int fd) noexcept;

/// Empty if it is no TCP socket.
std::string congestion_control(int fd) noexcept;

/// A round trip within a building takes less.
inline constexpr Duration kFar = std::chrono::milliseconds(1);

/// For a socket that has been used for a while: back to the system's choice if no round trip took
/// less than `far`. The first one alone says little: it may have waited for a name of the peer's
/// hardware.
void pace_if_far(int fd, Duration far = kFar) noexcept;

}  // namespace lockstep::sys
