#include "coll/meeting.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/status.h"
#include "sys/address.h"
#include "sys/host_identity.h"

namespace lockstep::coll {
namespace {

using sys::Address;

bool is_loopback(const std::string& address) {
  if (address.empty() || is_unix(address)) return false;
  const std::string host = Address::parse(address).host;
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

}  // namespace

bool is_unix(const std::string& address) { return address.rfind("unix:", 0) == 0; }

std::string user_socket(const std::string& name) {
  return fmt::format("unix:@lockstep-{}-{}", ::getuid(), name);
}

Meeting meeting_of(const std::vector<std::string>& addresses) {
  Meeting meeting{.addresses = addresses};
  if (meeting.addresses.front().empty()) throw ConfigError("rank 0 has no address");
  std::vector<int> loopback;
  std::vector<int> remote;
  for (int rank = 0; rank < static_cast<int>(addresses.size()); ++rank) {
    const std::string& address = meeting.addresses[static_cast<std::size_t>(rank)];
    if (address.empty()) continue;
    if (!is_unix(address)) (void)Address::parse(address);
    if (is_loopback(address) && !sys::host_is_named()) {
      loopback.push_back(rank);
    } else if (!is_unix(address)) {
      remote.push_back(rank);
    }
  }
  if (!loopback.empty() && !remote.empty()) {
    throw ConfigError(fmt::format(
        "rank {} has the address {}, which other machines cannot reach, but rank {} is at {}; give "
        "every rank the name or number under which the others know its machine",
        loopback.front(), meeting.addresses[static_cast<std::size_t>(loopback.front())],
        remote.front(), meeting.addresses[static_cast<std::size_t>(remote.front())]));
  }
  if (!loopback.empty()) {
    // All on this machine: no port is opened, a socket of this user's stands for it.
    for (std::string& address : meeting.addresses) {
      if (address.empty()) continue;
      address = user_socket(std::to_string(Address::parse(address).port));
    }
  }
  meeting.between_machines = !remote.empty();
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
