#include "sys/posix_net.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "sys/address.h"
#include "sys/os_error.h"
#include "sys/posix_poller.h"
#include "sys/posix_socket.h"

namespace lockstep::sys {
namespace {

SocketAddress unix_address(const std::string& path) {
  SocketAddress address;
  auto& local = reinterpret_cast<sockaddr_un&>(address.storage);
  local.sun_family = AF_UNIX;
  path.copy(local.sun_path, sizeof(local.sun_path) - 1);
  const bool abstract = path.front() == '@';
  if (abstract) local.sun_path[0] = '\0';
  // An abstract name ends with its size, a path with a zero byte.
  address.size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + (abstract ? 0 : 1));
  return address;
}

SocketAddress resolve(const Address& address, const std::string& text) {
  if (address.kind == Address::Kind::unix_socket) return unix_address(address.path);
  const std::string host = address.host == "localhost" ? "127.0.0.1" : address.host;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int result =
      ::getaddrinfo(host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (result == EAI_SYSTEM) {
    raise(os_error(fmt::format("cannot look up the host of {}", text), errno));
  }
  if (result != 0) {
    throw SystemError(fmt::format("cannot look up the host of {}: {}; check the name, /etc/hosts "
                                  "and the resolver, or write the address in numbers",
                                  text, ::gai_strerror(result)),
                      result == EAI_NONAME ? Code::not_found : Code::unavailable);
  }
  SocketAddress resolved;
  std::memcpy(&resolved.storage, found->ai_addr, found->ai_addrlen);
  resolved.size = found->ai_addrlen;
  ::freeaddrinfo(found);
  return resolved;
}

Descriptor make_socket(const SocketAddress& address, const std::string& what) {
  Descriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) raise(os_error(what, errno));
  return socket;
}

/// A socket file whose listener is gone: nobody answers there.
bool is_stale(const std::string& path, const SocketAddress& address) {
  struct stat file {};
  if (::lstat(path.c_str(), &file) != 0 || !S_ISSOCK(file.st_mode)) return false;
  const Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  return probe.valid() && ::connect(probe.get(), address.data(), address.size) != 0 &&
         errno == ECONNREFUSED;
}

}  // namespace

std::unique_ptr<Listener> PosixNetwork::listen(const std::string& text) {
  Address address = Address::parse(text);
  const SocketAddress bound_to = resolve(address, text);
  const std::string what = fmt::format("cannot listen at {}", text);
  Descriptor socket = make_socket(bound_to, what);
  const bool tcp = address.kind == Address::Kind::tcp;
  const bool has_file = !tcp && address.path.front() != '@';
  if (tcp) {
    // A restarted program gets its port back while old connections fade out.
    const int on = 1;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  }
  int bound = ::bind(socket.get(), bound_to.data(), bound_to.size);
  if (bound != 0 && errno == EADDRINUSE && has_file && is_stale(address.path, bound_to)) {
    ::unlink(address.path.c_str());
    bound = ::bind(socket.get(), bound_to.data(), bound_to.size);
  }
  if (bound != 0) raise(os_error(what, errno));
  if (::listen(socket.get(), SOMAXCONN) != 0) raise(os_error(what, errno));
  if (tcp) {
    const SocketAddress chosen = SocketAddress::of(socket.get());
    address.port = ntohs(chosen.family() == AF_INET6
                             ? reinterpret_cast<const sockaddr_in6&>(chosen.storage).sin6_port
                             : reinterpret_cast<const sockaddr_in&>(chosen.storage).sin_port);
  }
  return std::make_unique<PosixListener>(std::move(socket), address.to_string(),
                                         has_file ? address.path : std::string());
}

std::unique_ptr<Connection> PosixNetwork::connect(const std::string& text) {
  const SocketAddress target = resolve(Address::parse(text), text);
  Descriptor socket = make_socket(target, fmt::format("cannot connect to {}", text));
  return std::make_unique<PosixConnection>(std::move(socket), target, text);
}

void remove_stale_socket(const std::string& text) {
  const Address address = Address::parse(text);
  const bool has_file = address.kind == Address::Kind::unix_socket && address.path.front() != '@';
  if (has_file && is_stale(address.path, unix_address(address.path))) {
    ::unlink(address.path.c_str());
  }
}

std::unique_ptr<Poller> PosixNetwork::poller() { return std::make_unique<PosixPoller>(); }

}  // namespace lockstep::sys
