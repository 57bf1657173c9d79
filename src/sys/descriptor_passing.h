// What only a Unix socket can do: hand over an open file, and tell whose process is at the other
// end.
#pragma once

#include <sys/types.h>

#include <optional>

#include "base/status.h"
#include "sys/descriptor.h"
#include "sys/net.h"

namespace lockstep::sys {

/// Sends the descriptor with one byte of the stream. False: the connection does not take it now.
/// SystemError if it never will.
bool send_descriptor(Connection& connection, int descriptor);

/// Takes the next byte of the stream and the descriptor that came with it; empty: nothing is there
/// yet. DataError if the peer sent something else, SystemError if the stream is over.
std::optional<Descriptor> receive_descriptor(Connection& connection);

/// The process at the other end of a Unix socket, as the kernel knows it.
struct PeerProcess {
  pid_t pid = 0;  // 0: it is of another pid namespace
  uid_t uid = 0;
};
/// Empty for any other connection.
std::optional<PeerProcess> peer_process(Connection& connection);

}  // namespace lockstep::sys
