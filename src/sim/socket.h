// The objects a process holds on the simulated network: connections, listeners, pollers. Private
// to sim::Network, which makes them; they refer to its channels and ports.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/channel.h"
#include "sim/world.h"
#include "sys/net.h"

namespace lockstep::sim::detail {

/// A listening port. Shared by the network's table and the listener; closed when either lets go.
struct Port {
  std::string address;  // as the listener prints it
  Peer* owner = nullptr;
  bool open = true;
  std::deque<Channel*> waiting;  // to be accepted, the callee's ends
};

class Socket final : public sys::Connection {
 public:
  Socket(Channel& channel, Side side) : channel_(channel), side_(side) {}
  ~Socket() override { channel_.close(side_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  sys::Transfer read(std::span<std::byte> into) noexcept override {
    return channel_.read(side_, into);
  }
  sys::Transfer write(std::span<const std::byte> from) noexcept override {
    return channel_.write(side_, from);
  }
  void shutdown_write() noexcept override { channel_.shutdown_write(side_); }
  [[nodiscard]] Status error() const override { return channel_.error(side_); }
  [[nodiscard]] std::string peer() const override { return channel_.peer_address(side_); }
  [[nodiscard]] bool is_open() const noexcept override { return channel_.established(side_); }
  [[nodiscard]] std::string local_host() const override { return channel_.process(side_).host; }

  [[nodiscard]] std::optional<sys::Delivery> delivery() const noexcept override {
    return channel_.delivery(side_);
  }

  [[nodiscard]] bool ready_for(sys::Poller::Interest interest) const noexcept;

 private:
  Channel& channel_;
  Side side_;
};

class ListeningSocket final : public sys::Listener {
 public:
  explicit ListeningSocket(std::shared_ptr<Port> port) : port_(std::move(port)) {}
  ~ListeningSocket() override;
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;

  std::unique_ptr<sys::Connection> accept() override;
  [[nodiscard]] std::string address() const override { return port_->address; }
  [[nodiscard]] bool ready() const noexcept { return !port_->waiting.empty(); }

 private:
  std::shared_ptr<Port> port_;
};

class SimPoller final : public sys::Poller {
 public:
  explicit SimPoller(World& world) : world_(world) {}

  void watch(sys::Connection& connection, Interest interest) override;
  void watch(sys::Listener& listener) override;
  void forget(sys::Connection& connection) noexcept override;
  void forget(sys::Listener& listener) noexcept override;
  bool wait(Deadline deadline) override;
  [[nodiscard]] std::span<sys::Connection* const> ready() const noexcept override { return ready_; }
  void wake() noexcept override { woken_ = true; }

 private:
  struct Watched {
    const Socket* socket;
    Interest interest;
    sys::Connection* connection;  // that was given to watch()
  };
  [[nodiscard]] bool something_ready() const noexcept;
  void note_ready();

  World& world_;
  std::vector<Watched> sockets_;
  std::vector<const ListeningSocket*> listeners_;
  std::vector<sys::Connection*> ready_;
  bool woken_ = false;
};

}  // namespace lockstep::sim::detail
