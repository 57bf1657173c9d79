// LocalPort: a port of 127.0.0.1 that behaves badly, for tests of who finds out what.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "sys/descriptor.h"

namespace lockstep::tool {

class LocalPort {
 public:
  enum class Manner {
    refuses,  // nobody listens
    is_mute,  // the call is answered, nothing is said
    is_full,  // the call is not answered: as many wait as may
  };

  explicit LocalPort(Manner manner) : socket_(make()) {
    sockaddr_in address = local(0);
    socklen_t size = sizeof(address);
    if (::bind(socket_.get(), as_any(address), size) != 0) return;
    if (::getsockname(socket_.get(), as_any(address), &size) != 0) return;
    port_ = ntohs(address.sin_port);
    if (manner == Manner::refuses) return;
    if (::listen(socket_.get(), manner == Manner::is_full ? 0 : 8) != 0) return;
    if (manner != Manner::is_full) return;
    for (sys::Descriptor& waiting : waiting_) {
      waiting = make();
      // Nobody takes the call: it stays in the queue, or tries to.
      (void)::connect(waiting.get(), as_any(address), sizeof(address));
    }
  }

  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  static sys::Descriptor make() {
    return sys::Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  }
  static sockaddr_in local(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  static sockaddr* as_any(sockaddr_in& address) { return reinterpret_cast<sockaddr*>(&address); }

  sys::Descriptor socket_;
  sys::Descriptor waiting_[4];
  int port_ = 0;
};

}  // namespace lockstep::tool
