#include "launch/free_ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "sys/descriptor.h"
#include "sys/os_error.h"

namespace lockstep::tool {

std::vector<std::uint16_t> free_ports(int count) {
  std::vector<std::uint16_t> ports;
  std::vector<sys::Descriptor> sockets;  // all open at once: no port twice
  for (int i = 0; i < count; ++i) {
    sockets.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int fd = sockets.back().get();
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (fd < 0 || ::bind(fd, generic, size) != 0 || ::getsockname(fd, generic, &size) != 0) {
      raise(sys::os_error("cannot find a free port", errno));
    }
    ports.push_back(ntohs(address.sin_port));
  }
  return ports;
}

}  // namespace lockstep::tool
