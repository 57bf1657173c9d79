// Where ranks listen and how they reach each other: by the addresses they were given, or through
// Unix sockets where they are on one machine. Those have abstract names, which are no files: a
// process that is killed leaves nothing behind. Anybody could listen under such a name, so callers
// look whose process does (sys/posix_socket.h).
#pragma once

#include <string>
#include <vector>

#include "coll/roster.h"
#include "wire/hello.h"

namespace lockstep::coll {

struct Meeting {
  std::vector<std::string> addresses;  // by rank: what is dialled; empty: not known yet
  bool between_machines = false;       // callers may be strangers
};

/// Where all are on this host (cluster::are_of_this_host) they become sockets of this user's, named
/// by the port: no port is opened then. ConfigError for an address that cannot be, and for a
/// loopback address among others.
Meeting meeting_of(const std::vector<std::string>& addresses);

/// The address of a socket of this user's on this machine.
std::string user_socket(const std::string& name);

bool is_unix(const std::string& address);

/// `bind` is a host alone, whose port is that of the rank's entry, or has a port of its own.
std::string listening_address(const std::string& bind, const std::string& entry);

/// The socket of a rank itself, under a name that no other process ever has.
std::string own_socket(const wire::Hello& member);
/// Where this rank reaches another: on its host through a Unix socket, which each rank has.
std::string reachable_address(const Roster& roster, int rank);

}  // namespace lockstep::coll
