// Where ranks listen and how they reach each other: by the addresses they were given, or through
// sockets in a directory of the user's where all of them are on one machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coll/roster.h"
#include "wire/hello.h"

namespace lockstep::coll {

struct Meeting {
  std::vector<std::string> addresses;  // by rank: what is dialled; empty: not known yet
  bool between_machines = false;       // callers may be strangers
};

/// Loopback addresses become socket files named by port and `cluster`: no port is opened then.
/// ConfigError for an address that cannot be, and for a loopback address among others.
Meeting meeting_of(const std::vector<std::string>& addresses, std::uint64_t cluster);

bool is_unix(const std::string& address);

/// `bind` is a host alone, whose port is that of the rank's entry, or has a port of its own.
std::string listening_address(const std::string& bind, const std::string& entry);

/// The socket file of a rank itself, under a name that no other process ever has.
std::string own_socket_file(const wire::Hello& member);
/// Where this rank reaches another: on its host through a socket file, which each rank has.
std::string reachable_address(const Roster& roster, int rank);
/// Of a group that is over: the socket files of the others on this host. Who was killed leaves his
/// behind, and may still seem to listen while the system buries him; nobody calls there again.
void remove_socket_files(const std::vector<wire::Hello>& members, const wire::Hello& own);

}  // namespace lockstep::coll
