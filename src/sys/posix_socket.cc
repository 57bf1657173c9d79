#include "sys/posix_socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "sys/address.h"
#include "sys/congestion.h"
#include "sys/os_error.h"

namespace lockstep::sys {
namespace {

using State = Transfer::State;

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

/// 0 if it is of another pid namespace, or the socket is no Unix socket.
pid_t peer_process(int fd) noexcept {
  const auto who = peer_credentials(fd);
  return who ? who->pid : 0;
}

/// Who called a Unix socket: callers have no address, but a process.
std::string unix_caller(int fd, const std::string& listening_at) {
  const pid_t pid = peer_process(fd);
  return pid == 0 ? listening_at : fmt::format("{} (pid {})", listening_at, pid);
}

bool is_abstract(const SocketAddress& address) {
  return address.family() == AF_UNIX &&
         reinterpret_cast<const sockaddr_un&>(address.storage).sun_path[0] == '\0';
}

bool is_other_users(int fd) noexcept {
  const auto who = peer_credentials(fd);
  return !who || who->uid != ::getuid();
}

}  // namespace

std::optional<ucred> peer_credentials(int fd) noexcept {
  int family = 0;
  socklen_t size = sizeof(family);
  if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size) != 0 || family != AF_UNIX) {
    return std::nullopt;
  }
  ucred who{};
  size = sizeof(who);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return std::nullopt;
  return who;
}

bool SocketAddress::same_endpoint(const SocketAddress& other) const noexcept {
  if (family() != other.family()) return false;
  if (family() == AF_INET) {
    const auto& a = reinterpret_cast<const sockaddr_in&>(storage);
    const auto& b = reinterpret_cast<const sockaddr_in&>(other.storage);
    return a.sin_port == b.sin_port && a.sin_addr.s_addr == b.sin_addr.s_addr;
  }
  if (family() == AF_INET6) {
    const auto& a = reinterpret_cast<const sockaddr_in6&>(storage);
    const auto& b = reinterpret_cast<const sockaddr_in6&>(other.storage);
    return a.sin6_port == b.sin6_port &&
           std::memcmp(&a.sin6_addr, &b.sin6_addr, sizeof(a.sin6_addr)) == 0;
  }
  return false;
}

std::string SocketAddress::to_string() const {
  char text[INET6_ADDRSTRLEN] = {};
  if (family() == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return fmt::format("{}:{}", text, ntohs(v4.sin_port));
  }
  if (family() == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
    return fmt::format("[{}]:{}", text, ntohs(v6.sin6_port));
  }
  return "unix:";
}

std::string SocketAddress::host() const {
  if (family() != AF_INET && family() != AF_INET6) return {};
  const std::string text = to_string();
  return text.substr(0, text.rfind(':'));
}

bool SocketAddress::is_loopback() const noexcept {
  constexpr unsigned kNetwork = 127;
  if (family() == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    return ntohl(v4.sin_addr.s_addr) >> 24 == kNetwork;
  }
  if (family() != AF_INET6) return false;
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == kNetwork);
}

SocketAddress SocketAddress::of(int fd) noexcept {
  SocketAddress address;
  address.size = sizeof(address.storage);
  if (::getsockname(fd, address.data(), &address.size) != 0) return {};
  return address;
}

PosixConnection::PosixConnection(Descriptor socket, const SocketAddress& target, std::string peer,
                                 AddressTurn turn)
    : socket_(std::move(socket)),
      target_(target),
      peer_(std::move(peer)),
      turn_(std::move(turn)),
      taken_turn_(turn_ ? turn_->load() : 0),
      phase_(Phase::calling) {
  call();
}

PosixConnection::PosixConnection(Descriptor socket, std::string peer)
    : socket_(std::move(socket)), peer_(std::move(peer)) {}

PosixConnection::~PosixConnection() {
  // Of several calls that fail only the first one moves on.
  if (turn_ && phase_ != Phase::connected) {
    turn_->compare_exchange_strong(taken_turn_, taken_turn_ + 1);
  }
}

void PosixConnection::call() noexcept {
  const int result = ::connect(fd(), target_.data(), target_.size) == 0 ? 0 : errno;
  // A Unix listener's queue may be full: called again at the next transfer.
  if (would_block(result)) return;
  // An interrupted call goes on in the kernel like one under way.
  if (result == 0 || result == EINPROGRESS || result == EINTR || result == EALREADY) {
    phase_ = Phase::connecting;
  } else {
    error_ = result;
  }
}

bool PosixConnection::settled() noexcept {
  if (phase_ == Phase::connected || error_ != 0) return true;
  if (phase_ == Phase::calling) call();
  if (phase_ != Phase::connecting) return error_ != 0;
  SocketAddress peer;
  peer.size = sizeof(peer.storage);
  if (::getpeername(fd(), peer.data(), &peer.size) != 0) {
    socklen_t size = sizeof(error_);
    ::getsockopt(fd(), SOL_SOCKET, SO_ERROR, &error_, &size);
    return error_ != 0;
  }
  // Calling a free port of this very host can meet itself: the kernel may give the caller that
  // same port. Nobody listens there.
  if (peer.same_endpoint(SocketAddress::of(fd()))) {
    error_ = ECONNREFUSED;
    return true;
  }
  if (is_abstract(target_) && is_other_users(fd())) {
    error_ = EACCES;
    return true;
  }
  phase_ = Phase::connected;
  if (shutdown_asked_) ::shutdown(fd(), SHUT_WR);
  return true;
}

Transfer PosixConnection::failed(int error) noexcept {
  if (error_ == 0) error_ = error;
  return {0, State::broken};
}

Transfer PosixConnection::read(std::span<std::byte> into) noexcept {
  if (into.empty() || !settled()) return {};
  // After an error too: bytes that came before it are still there to be read.
  const auto receive = [&] {
    return retry_on_signal([&] { return ::recv(fd(), into.data(), into.size(), MSG_DONTWAIT); });
  };
  ssize_t got = receive();
  int error = errno;  // looking for the peer changes it
  if (got < 0 && would_block(error) && peer_has_ended()) {
    // It may have written between that look and its end; after this one nothing can come.
    got = receive();
    error = errno;
    if (got < 0 && would_block(error)) return {0, State::closed};
  }
  if (got > 0) return {static_cast<std::size_t>(got), State::open};
  // Only our own direction may be closed, by somebody else: the peer is still heard. (Of a
  // connection that is gone the kernel gives its end.)
  if (got < 0 && would_block(error) && error_ == EPIPE) return {};
  // The kernel tells an error once and an end from then on.
  if (error_ != 0) return {0, State::broken};
  if (got == 0) return {0, State::closed};
  return would_block(error) ? Transfer{} : failed(error);
}

Transfer PosixConnection::write(std::span<const std::byte> from) noexcept {
  return write_both(from, {});
}

Transfer PosixConnection::write_both(std::span<const std::byte> first,
                                     std::span<const std::byte> second) noexcept {
  if (!settled()) return {};
  if (error_ != 0) return {0, State::broken};
  if (shutdown_asked_) return failed(EPIPE);
  if (first.empty() && second.empty()) return {};
  if (writes_ < kGreetings && ++writes_ == kGreetings) pace_if_far(fd());
  // The system's type has no const.
  const auto piece = [](std::span<const std::byte> bytes) {
    return iovec{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  };
  iovec pieces[] = {piece(first), piece(second)};
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = second.empty() ? 1 : 2;
  const ssize_t sent =
      retry_on_signal([&] { return ::sendmsg(fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL); });
  if (sent >= 0) return {static_cast<std::size_t>(sent), State::open};
  return would_block(errno) ? Transfer{} : failed(errno);
}

void PosixConnection::watch_peer() noexcept {
  if (peer_process_.valid()) return;
  const pid_t pid = peer_process(fd());
  if (pid <= 0) return;
  // If the peer has died and another process got its pid, the wrong one is watched. Its end then
  // says that a peer is dead which is.
  peer_process_ = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

bool PosixConnection::peer_has_ended() const noexcept {
  if (!peer_process_.valid()) return false;
  pollfd end{.fd = peer_process_.get(), .events = POLLIN, .revents = 0};
  return retry_on_signal([&] { return ::poll(&end, 1, 0); }) > 0 && (end.revents & POLLIN) != 0;
}

void PosixConnection::shutdown_write() noexcept {
  if (std::exchange(shutdown_asked_, true)) return;
  // Half-closing a socket that is still connecting would give the connection up.
  if (settled() && error_ == 0) ::shutdown(fd(), SHUT_WR);
}

Status PosixConnection::error() const {
  if (error_ == 0) return {};
  return os_error(fmt::format("connection to {}", peer_), error_);
}

std::string PosixConnection::local_host() const { return SocketAddress::of(fd()).host(); }

PosixListener::PosixListener(Descriptor socket, std::string address, std::string path)
    : socket_(std::move(socket)), address_(std::move(address)), path_(std::move(path)) {
  if (!path_.empty()) ::lstat(path_.c_str(), &file_);
}

PosixListener::~PosixListener() {
  // Only our own file: another process may have replaced it since.
  struct stat now {};
  if (!path_.empty() && ::lstat(path_.c_str(), &now) == 0 && now.st_dev == file_.st_dev &&
      now.st_ino == file_.st_ino) {
    ::unlink(path_.c_str());
  }
}

std::unique_ptr<Connection> PosixListener::accept() {
  for (;;) {
    SocketAddress caller;
    caller.size = sizeof(caller.storage);
    Descriptor socket(::accept4(fd(), caller.data(), &caller.size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid()) {
      std::string name =
          caller.family() == AF_UNIX ? unix_caller(socket.get(), address_) : caller.to_string();
      return std::make_unique<PosixConnection>(std::move(socket), std::move(name));
    }
    if (would_block(errno)) return nullptr;
    const bool shortage = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    const bool ours = errno == EBADF || errno == EINVAL || errno == ENOTSOCK || errno == EFAULT;
    if (shortage || ours || errno == EPERM) {
      raise(os_error(fmt::format("cannot accept a connection at {}", address_), errno));
    }
    // A caller that gave up while it waited (ECONNABORTED and its kin): on to the next.
  }
}

}  // namespace lockstep::sys
