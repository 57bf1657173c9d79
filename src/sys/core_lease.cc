#include "sys/core_lease.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <string>

namespace lockstep::sys {
namespace {

/// Invalid if the name is taken, or cannot be.
Descriptor bind_name(int cpu) {
  Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = fmt::format("lockstep-core-{}", cpu);
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);  // abstract: begins with a zero
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) return {};
  return socket;
}

}  // namespace

std::optional<CoreLease> CoreLease::take(const std::vector<CpuSet>& cores) {
  CoreLease lease;
  for (const CpuSet& cpus : cores) {
    for (const int cpu : cpus) {
      lease.names_.push_back(bind_name(cpu));
      if (!lease.names_.back().valid()) return std::nullopt;
    }
  }
  return lease;
}

}  // namespace lockstep::sys
