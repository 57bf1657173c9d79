#include "sim/socket.h"

#include <algorithm>

#include "base/thread_scheduler.h"
#include "lockstep/error.h"

namespace lockstep::sim::detail {
namespace {

/// What a system call costs, about.
constexpr Duration kLeastWait = std::chrono::microseconds(1);

/// A poller knows the objects of its own network only.
template <class Mine, class Base>
const Mine& own(const Base& object) {
  const auto* mine = dynamic_cast<const Mine*>(&object);
  if (mine == nullptr) {
    throw InvalidUsage("a simulated poller was given a connection or listener of another network");
  }
  return *mine;
}

}  // namespace

bool Socket::ready_for(sys::Poller::Interest interest) const noexcept {
  using Interest = sys::Poller::Interest;
  const bool reads = interest == Interest::read || interest == Interest::read_write;
  const bool writes = interest == Interest::write || interest == Interest::read_write;
  return (reads && channel_.readable(side_)) || (writes && channel_.writable(side_));
}

ListeningSocket::~ListeningSocket() {
  port_->open = false;
  for (Channel* channel : port_->waiting) channel->close(Side::callee);
  port_->waiting.clear();
}

std::unique_ptr<sys::Connection> ListeningSocket::accept() {
  if (port_->waiting.empty()) return nullptr;
  Channel& channel = *port_->waiting.front();
  port_->waiting.pop_front();
  return std::make_unique<Socket>(channel, Side::callee);
}

void SimPoller::watch(sys::Connection& connection, Interest interest) {
  const auto& socket = own<Socket>(connection.underlying());
  const auto known = std::find_if(sockets_.begin(), sockets_.end(),
                                  [&](const Watched& w) { return w.socket == &socket; });
  if (known == sockets_.end()) {
    sockets_.push_back({&socket, interest, &connection});
  } else {
    *known = {&socket, interest, &connection};
  }
}

void SimPoller::watch(sys::Listener& listener) {
  const auto& socket = own<ListeningSocket>(listener);
  if (std::find(listeners_.begin(), listeners_.end(), &socket) == listeners_.end()) {
    listeners_.push_back(&socket);
  }
}

void SimPoller::forget(sys::Connection& connection) noexcept {
  const sys::Connection* own = &connection.underlying();
  std::erase_if(sockets_, [&](const Watched& w) { return w.socket == own; });
  std::erase(ready_, &connection);
}

void SimPoller::forget(sys::Listener& listener) noexcept {
  std::erase_if(listeners_, [&](const ListeningSocket* l) { return l == &listener; });
}

bool SimPoller::something_ready() const noexcept {
  return woken_ ||
         std::any_of(sockets_.begin(), sockets_.end(),
                     [](const Watched& w) { return w.socket->ready_for(w.interest); }) ||
         std::any_of(listeners_.begin(), listeners_.end(),
                     [](const ListeningSocket* l) { return l->ready(); });
}

void SimPoller::note_ready() {
  woken_ = false;
  for (const Watched& watched : sockets_) {
    if (watched.socket->ready_for(watched.interest)) ready_.push_back(watched.connection);
  }
}

bool SimPoller::wait(Deadline deadline) {
  ready_.clear();
  bool something = false;
  if (lockstep::ThreadScheduler* scheduler = lockstep::ThreadScheduler::current()) {
    something = scheduler->wait([this] { return something_ready(); }, deadline);
  } else {
    // A wait takes its time even if something is ready: a caller that ignores it would otherwise
    // stand still for ever, and so would its deadline.
    if (!deadline.passed(world_.now())) {
      world_.run_until([] { return false; },
                       earlier(deadline, Deadline::after(world_, kLeastWait)));
    }
    something = world_.run_until([this] { return something_ready(); }, deadline);
  }
  note_ready();
  return something;
}

}  // namespace lockstep::sim::detail
