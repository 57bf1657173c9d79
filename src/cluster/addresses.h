// The rules for addresses of a cluster, beyond how one is written (sys/address.h).
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lockstep::cluster {

/// What is wrong with an address of a cluster, empty if nothing: it must parse, and its port must
/// be one that others can know.
std::string address_problem(const std::string& address);

/// An address and what it belongs to: "worker 1", "LOCKSTEP_ADDRESSES entry 3".
struct Entry {
  std::string name;
  std::string address;  // empty: not known
};

/// ConfigError if two entries have one address, or if some are of this host only (localhost,
/// 127.0.0.1, [::1]) and others are not. `source` says where the entries come from.
void check_together(std::string_view source, std::span<const Entry> entries);

/// Whether only processes of the same host can get there.
bool is_loopback(const std::string& address);

/// Whether the addresses by themselves say that all ranks are on this host, so that no port is
/// needed: loopback ones, or the name that this machine calls itself in every entry. Nothing is
/// looked up, so that all processes of a machine answer alike. False where LOCKSTEP_HOST says what
/// a host is.
bool are_of_this_host(std::span<const std::string> addresses);

}  // namespace lockstep::cluster
