// Which congestion control a TCP connection uses.
//
// Collectives write in bursts and wait in between. BBR takes the pauses for the path's speed and
// spreads the next burst over time, which costs up to two thirds of the throughput on a local
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

/// For a connected socket: back to the system's choice if a round trip takes `far` or longer.
void pace_if_far(int fd, Duration far = kFar) noexcept;

}  // namespace lockstep::sys
