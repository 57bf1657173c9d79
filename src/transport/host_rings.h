// HostRings: what connects a rank to the members of a group that are on its host, when the group
// has others, too. Between any two of them there is a channel each way, which lies in its writer's
// arena; they become a connection with a Unix socket that the two have (ring_connection.h). A
// channel is made when its writer connects.
//
//   HostRings rings(host, group, {0, 1, 3});              // the group's members on this host
//   auto connection = rings.connect(/*index=*/3, std::move(socket));
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "sys/net.h"
#include "transport/channel.h"
#include "transport/shm_host.h"

namespace lockstep::transport {

class HostRings {
 public:
  /// `indices` are the members' on this host, this rank's included, in the same order on all of
  /// them. SystemError if memory is short.
  HostRings(std::shared_ptr<ShmHost> host, std::uint64_t group, std::vector<int> indices);

  /// Becomes a connection to the rank with that index, at the other end of the socket. Keeps what
  /// it needs of the host.
  [[nodiscard]] std::unique_ptr<sys::Connection> connect(
      int index, std::unique_ptr<sys::Connection> socket) const;

 private:
  struct Shared;

  std::shared_ptr<Shared> shared_;  // with the connections
};

}  // namespace lockstep::transport
