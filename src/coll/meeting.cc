#include "coll/meeting.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/status.h"
#include "cluster/addresses.h"
#include "sys/address.h"
#include "sys/host_identity.h"

namespace lockstep::coll {
namespace {

using sys::Address;

/// ConfigError if some ranks could not be reached from where others are.
void check_reach(const std::vector<std::string>& addresses) {
  int near = -1;
  int far = -1;
  for (int rank = 0; rank < static_cast<int>(addresses.size()); ++rank) {
    const std::string& address = addresses[static_cast<std::size_t>(rank)];
    if (address.empty() || is_unix(address)) continue;
    int& first = cluster::is_loopback(address) && !sys::host_is_named() ? near : far;
    if (first < 0) first = rank;
  }
  if (near < 0 || far < 0) return;
  throw ConfigError(fmt::format(
      "rank {} has the address {}, which other machines cannot reach, but rank {} is at {}; give "
      "every rank the name or number under which the others know its machine",
      near, addresses[static_cast<std::size_t>(near)], far,
      addresses[static_cast<std::size_t>(far)]));
}

}  // namespace

bool is_unix(const std::string& address) { return address.rfind("unix:", 0) == 0; }

std::string user_socket(const std::string& name) {
  return fmt::format("unix:@lockstep-{}-{}", ::getuid(), name);
}

Meeting meeting_of(const std::vector<std::string>& addresses) {
  if (addresses.front().empty()) throw ConfigError("rank 0 has no address");
  check_reach(addresses);
  Meeting meeting{.addresses = addresses};
  const bool on_this_host = cluster::are_of_this_host(addresses);
  for (std::string& address : meeting.addresses) {
    if (address.empty() || is_unix(address)) continue;
    if (on_this_host) {
      // No port is opened, a socket of this user's stands for it.
      address = user_socket(std::to_string(Address::parse(address).port));
    } else {
      meeting.between_machines = true;
    }
  }
  return meeting;
}

std::string listening_address(const std::string& bind, const std::string& entry) {
  const bool bare_v6 = std::count(bind.begin(), bind.end(), ':') > 1 && bind.front() != '[';
  const bool has_port = !bare_v6 && bind.find(':', bind.rfind(']') + 1) != std::string::npos;
  if (has_port) return bind;
  const int port = entry.empty() ? 0 : Address::parse(entry).port;
  return bare_v6 ? fmt::format("[{}]:{}", bind, port) : fmt::format("{}:{}", bind, port);
}

std::string own_socket(const wire::Hello& member) {
  return user_socket(fmt::format("{:016x}", member.incarnation));
}

std::string reachable_address(const Roster& roster, int rank) {
  const wire::Hello& member = roster.at(rank);
  std::string address(member.address_text());
  if (is_unix(address) || !roster.same_host(roster.rank, rank)) return address;
  return own_socket(member);
}

}  // namespace lockstep::coll
