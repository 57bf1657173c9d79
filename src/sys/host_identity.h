// Which host this is: processes with equal identities can share memory and see each other's pids.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::sys {

/// A digest of the running kernel, the network namespace and the pid namespace of this process.
/// LOCKSTEP_HOST, if set, counts instead: any word, equal on ranks that shall count as one host.
std::uint64_t host_identity();

/// LOCKSTEP_HOST is set: hosts are what the user says, loopback addresses included.
bool host_is_named();

/// What this machine calls itself.
std::string host_name();

/// Whether two names of hosts are one: in small letters or capitals, and with a domain or without
/// if one of them has none.
bool same_host_name(std::string_view one, std::string_view other);

}  // namespace lockstep::sys
