// PosixPoller: waits on sockets with epoll, woken through an eventfd. Made by PosixNetwork.
#pragma once

#include <cstdint>
#include <unordered_map>

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
  void wake() noexcept override;

 private:
  void set(int fd, std::uint32_t events);
  void remove(int fd) noexcept;

  Descriptor epoll_;
  Descriptor wake_;
  std::unordered_map<int, std::uint32_t> watched_;  // events by descriptor
};

}  // namespace lockstep::sys
