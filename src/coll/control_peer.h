// What the sources of Control share: what a rank knows of one control peer.
#pragma once

#include <chrono>
#include <cstdint>

#include "coll/control.h"
#include "coll/control_channel.h"

namespace lockstep::coll {

/// In place of the number of an operation: the rank has not left.
inline constexpr std::uint64_t kHere = UINT64_MAX;

inline double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

struct Control::Peer {
  Peer(int number, sys::Connection& connection, std::uint64_t generation)
      : rank(number), channel(connection, generation) {}

  int rank;
  ControlChannel channel;
  Time heard{};
  bool suspected = false;
  bool aborting = false;  // it told us why it ends; its end is no news
  bool lost = false;
  /// The connection is new, and the peer may not know that it has it.
  bool unproven = false;
};

}  // namespace lockstep::coll
