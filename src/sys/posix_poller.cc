#include "sys/posix_poller.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>

#include "lockstep/error.h"
#include "sys/os_error.h"
#include "sys/posix_socket.h"

namespace lockstep::sys {
namespace {

/// Events taken at a time.
constexpr std::size_t kFewestEvents = 16;
constexpr std::size_t kMostEvents = 1024;

template <class Own, class Base>
int fd_of(const Base& object) {
  const auto* own = dynamic_cast<const Own*>(&object);
  if (own == nullptr) {
    throw InvalidUsage("a poller was given a connection or listener of another network");
  }
  return own->fd();
}

std::uint32_t events_of(Poller::Interest interest) {
  switch (interest) {
    case Poller::Interest::none:
      return 0;
    case Poller::Interest::read:
      return EPOLLIN;
    case Poller::Interest::write:
      return EPOLLOUT;
    case Poller::Interest::read_write:
      return EPOLLIN | EPOLLOUT;
  }
  return 0;
}

/// Milliseconds to sleep, rounded up: waking early would spin. Cut to an hour, since the caller
/// loops.
int sleep_for(Deadline deadline) {
  const Time now = MonotonicClock().now();
  if (deadline.passed(now)) return 0;
  constexpr auto longest = std::chrono::hours(1);
  const Duration left = std::min<Duration>(deadline.time() - now, longest);
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

}  // namespace

PosixPoller::PosixPoller()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!epoll_.valid() || !wake_.valid()) raise(os_error("cannot make a poller", errno));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = wake_.get();
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0) {
    raise(os_error("cannot make a poller", errno));
  }
}

void PosixPoller::watch(Connection& connection, Interest interest) {
  const std::uint32_t events = events_of(interest);
  set(fd_of<PosixConnection>(connection.underlying()), events, &connection);
  // The end of a process that the connection watches is something to read.
  const int process = dynamic_cast<const PosixConnection&>(connection.underlying()).peer_fd();
  if (process >= 0) set(process, events & EPOLLIN, &connection);
}

void PosixPoller::watch(Listener& listener) {
  set(fd_of<PosixListener>(listener), EPOLLIN, nullptr);
}

void PosixPoller::forget(Connection& connection) noexcept {
  const auto* own = dynamic_cast<const PosixConnection*>(&connection.underlying());
  if (own == nullptr) return;
  remove(own->fd());
  remove(own->peer_fd());
  std::erase(ready_, &connection);
}

void PosixPoller::forget(Listener& listener) noexcept {
  if (const auto* own = dynamic_cast<const PosixListener*>(&listener)) remove(own->fd());
}

void PosixPoller::set(int fd, std::uint32_t events, Connection* connection) {
  // Errors and hang-ups are reported whatever is asked for; only absence is quiet.
  if (events == 0) return remove(fd);
  const auto [known, added] = watched_.try_emplace(fd);
  known->second.connection = connection;
  if (!added && known->second.events == events) return;
  known->second.events = events;
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), added ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) != 0) {
    watched_.erase(known);
    raise(os_error("cannot watch a socket", errno));
  }
}

void PosixPoller::remove(int fd) noexcept {
  if (watched_.erase(fd) > 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

bool PosixPoller::wait(Deadline deadline) {
  ready_.clear();
  events_.resize(std::clamp(watched_.size() + 1, kFewestEvents, kMostEvents));
  for (;;) {
    const int sleep = sleep_for(deadline);
    const int count =
        ::epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()), sleep);
    if (count > 0) {
      take(count);
      return true;
    }
    if (count < 0 && errno != EINTR) raise(os_error("cannot wait for sockets", errno));
    if (count == 0 && deadline.passed()) return false;
  }
}

void PosixPoller::take(int events) {
  for (const epoll_event& event : std::span(events_).first(static_cast<std::size_t>(events))) {
    if (event.data.fd == wake_.get()) {
      std::uint64_t wakes = 0;
      retry_on_signal([&] { return ::read(wake_.get(), &wakes, sizeof(wakes)); });
      continue;
    }
    const auto known = watched_.find(event.data.fd);
    if (known != watched_.end() && known->second.connection != nullptr) {
      ready_.push_back(known->second.connection);
    }
  }
}

void PosixPoller::wake() noexcept {
  // Fails only if 2^64 - 2 wakes are pending: it is awake then.
  const std::uint64_t one = 1;
  retry_on_signal([&] { return ::write(wake_.get(), &one, sizeof(one)); });
}

}  // namespace lockstep::sys
