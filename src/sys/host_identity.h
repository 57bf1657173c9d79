// Which host this is: processes with equal identities can share memory and see each other's pids.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::sys {

/// A digest of the running kernel, the network namespace and the pid namespace of this process.
/// LOCKSTEP_HOST, if set, counts instead: any word, equal on ranks that shall count as one host.
std::uint64_t host_identity();

/// LOCKSTEP_HOST is set: hosts are what the user says, loopback addresses included.
bool host_is_named();

/// The name of the machine, for messages.
std::string host_name();

}  // namespace lockstep::sys
