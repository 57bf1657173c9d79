// PosixPoller: waits on sockets with epoll, woken through an eventfd. Made by PosixNetwork.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "sys/descriptor.h"
#include "sys/net.h"

namespace lockstep::sys {

class PosixPoller final : public Poller {
 public:
  /// SystemError if the system has no descriptors left.
  PosixPoller();

  void watch(Connection& connection, Interest interest) override;
  void watch(Listener& listener) override;
  void forget(Connection& connection) noexcept override;
  void forget(Listener& listener) noexcept override;
  bool wait(Deadline deadline) override;
  [[nodiscard]] std::span<Connection* const> ready() const noexcept override { return ready_; }
  void wake() noexcept override;

 private:
  struct Watched {
    std::uint32_t events = 0;
    Connection* connection = nullptr;  // null: a listener
  };
  void set(int fd, std::uint32_t events, Connection* connection);
  void remove(int fd) noexcept;
  /// Notes which connections are ready, and takes the wakes back.
  void take(int events);

  Descriptor epoll_;
  Descriptor wake_;
  std::unordered_map<int, Watched> watched_;  // by descriptor
  std::vector<epoll_event> events_;
  std::vector<Connection*> ready_;
};

}  // namespace lockstep::sys
