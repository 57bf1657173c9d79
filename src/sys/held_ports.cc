#include "sys/held_ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "sys/os_error.h"

namespace lockstep::sys {

// With SO_REUSEADDR on both sides Linux lets another socket listen where one is merely bound, yet
// gives such a port to nobody who asks for any.
HeldPorts::HeldPorts(int count) {
  for (int i = 0; i < count; ++i) {
    sockets_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int fd = sockets_.back().get();
    const int on = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (fd < 0 || ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        ::bind(fd, generic, size) != 0 || ::getsockname(fd, generic, &size) != 0) {
      raise(os_error("cannot find a free port", errno));
    }
    numbers_.push_back(ntohs(address.sin_port));
  }
}

}  // namespace lockstep::sys
