#include "sys/posix_net.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>

#include "sys/address.h"
#include "sys/congestion.h"
#include "sys/lookups.h"
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

/// The address of a host in numbers; empty for a name.
std::optional<SocketAddress> number_of(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return std::nullopt;
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  ::freeaddrinfo(found);
  return address;
}

std::vector<SocketAddress> look_up(Lookups& lookups, const std::string& host,
                                   const std::string& text, Duration patience) {
  constexpr const char* kAdvice =
      "check the name, /etc/hosts and the resolver, or write the address in numbers";
  const auto answer = lookups.find(host, Deadline::after(patience));
  if (!answer) {
    throw SystemError(
        fmt::format("cannot look up the host of {}: no answer of the resolver within {:.1f} s; {}",
                    text, std::chrono::duration<double>(patience).count(), kAdvice),
        Code::deadline_exceeded);
  }
  if (answer->error == EAI_SYSTEM) {
    raise(os_error(fmt::format("cannot look up the host of {}", text), answer->system_error));
  }
  if (answer->error != 0) {
    throw SystemError(fmt::format("cannot look up the host of {}: {}; {}", text,
                                  ::gai_strerror(answer->error), kAdvice),
                      answer->error == EAI_NONAME ? Code::not_found : Code::unavailable);
  }
  return answer->addresses;
}

void set_port(SocketAddress& address, int port) {
  const in_port_t number = htons(static_cast<std::uint16_t>(port));
  if (address.family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address.storage).sin6_port = number;
  } else {
    reinterpret_cast<sockaddr_in&>(address.storage).sin_port = number;
  }
}

/// Not empty.
std::vector<SocketAddress> resolve(Lookups& lookups, const Address& address,
                                   const std::string& text, Duration patience) {
  if (address.kind == Address::Kind::unix_socket) return {unix_address(address.path)};
  const std::string host = address.host == "localhost" ? "127.0.0.1" : address.host;
  const auto number = number_of(host);
  auto resolved = number ? std::vector{*number} : look_up(lookups, host, text, patience);
  for (SocketAddress& each : resolved) set_port(each, address.port);
  return resolved;
}

Descriptor make_socket(const SocketAddress& address, const std::string& what) {
  Descriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) raise(os_error(what, errno));
  if (address.family() != AF_UNIX) {
    // Small frames go out at once. What a listener accepts inherits both.
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    choose_bursts(socket.get());
  }
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

PosixNetwork::PosixNetwork() : PosixNetwork(Patience()) {}
PosixNetwork::PosixNetwork(const Patience& patience)
    : PosixNetwork(patience, std::make_unique<Lookups>()) {}
PosixNetwork::PosixNetwork(const Patience& patience, std::unique_ptr<Lookups> lookups)
    : patience_(patience), lookups_(std::move(lookups)) {}
PosixNetwork::~PosixNetwork() = default;

std::unique_ptr<Listener> PosixNetwork::listen(const std::string& text) {
  Address address = Address::parse(text);
  auto places = resolve(*lookups_, address, text, patience_.listening);
  std::stable_partition(places.begin(), places.end(),
                        [](const SocketAddress& place) { return !place.is_loopback(); });
  const std::string what = fmt::format("cannot listen at {}", text);
  const bool tcp = address.kind == Address::Kind::tcp;
  const bool has_file = !tcp && address.path.front() != '@';
  Descriptor socket;
  for (const SocketAddress& place : places) {
    try {
      socket = make_socket(place, what);
    } catch (const SystemError&) {
      if (&place == &places.back()) throw;
      continue;  // a family that is switched off
    }
    if (tcp) {
      // A restarted program gets its port back while old connections fade out.
      const int on = 1;
      ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    }
    int bound = ::bind(socket.get(), place.data(), place.size);
    if (bound != 0 && errno == EADDRINUSE && has_file && is_stale(address.path, place)) {
      ::unlink(address.path.c_str());
      bound = ::bind(socket.get(), place.data(), place.size);
    }
    if (bound == 0) break;
    // A name may have addresses of other machines.
    if (errno != EADDRNOTAVAIL || &place == &places.back()) raise(os_error(what, errno));
  }
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
  const Address address = Address::parse(text);
  const auto targets = resolve(*lookups_, address, text, patience_.connecting);
  const AddressTurn turn = targets.size() > 1 ? turn_of(address.host) : nullptr;
  unsigned taken = turn ? turn->load() : 0;
  const SocketAddress& target = targets[taken % targets.size()];
  Descriptor socket;
  try {
    socket = make_socket(target, fmt::format("cannot connect to {}", text));
  } catch (const SystemError&) {
    // A family that is switched off: the next call goes to the next address.
    if (turn) turn->compare_exchange_strong(taken, taken + 1);
    throw;
  }
  // Which of a name's addresses it was is worth knowing.
  const std::string number = target.host();
  const bool by_name = text.find(number) == std::string::npos && address.host != "localhost";
  return std::make_unique<PosixConnection>(
      std::move(socket), target, by_name ? fmt::format("{} ({})", text, number) : text, turn);
}

AddressTurn PosixNetwork::turn_of(const std::string& host) {
  const MutexLock lock(mutex_);
  AddressTurn& turn = turns_[host];
  if (!turn) turn = std::make_shared<std::atomic<unsigned>>(0);
  return turn;
}

std::unique_ptr<Poller> PosixNetwork::poller() { return std::make_unique<PosixPoller>(); }

}  // namespace lockstep::sys
