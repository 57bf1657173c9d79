// Two plain ends that are connected, by whatever network a test wants, and what is done to them.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/network.h"
#include "sys/posix_net.h"
#include "sys/posix_socket.h"

namespace lockstep::transport {

using Bytes = std::vector<std::byte>;

/// The ends, and the world they live in.
class Wires {
 public:
  virtual ~Wires() = default;
  /// Lets time pass where it does not by itself.
  virtual void pass() {}
  virtual std::unique_ptr<sys::Poller> poller() = 0;

  std::unique_ptr<sys::Connection> client;
  std::unique_ptr<sys::Connection> server;

 protected:
  void open(sys::Network& from, sys::Network& to, const std::string& address) {
    const auto listener = to.listen(address);
    client = from.connect(listener->address());
    for (int turn = 0; turn < 1'000'000 && !server; ++turn) {
      pass();
      server = listener->accept();
    }
    if (!server) ADD_FAILURE() << "no connection at " << address;
  }
};

class TcpWires : public Wires {
 public:
  TcpWires() { open(network_, network_, "127.0.0.1:0"); }
  std::unique_ptr<sys::Poller> poller() override { return network_.poller(); }

 private:
  sys::PosixNetwork network_;
};

class PairWires : public Wires {
 public:
  PairWires() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    client = std::make_unique<sys::PosixConnection>(sys::Descriptor(fds[0]), "pair:server");
    server = std::make_unique<sys::PosixConnection>(sys::Descriptor(fds[1]), "pair:client");
  }
  std::unique_ptr<sys::Poller> poller() override { return sys::PosixNetwork().poller(); }
};

class SimWires : public Wires {
 public:
  explicit SimWires(sim::LinkOptions links) : world_(11), network_(world_, links) {
    open(network_.at("client"), network_.at("server"), "server:4000");
  }
  ~SimWires() override {
    client.reset();
    server.reset();
  }
  void pass() override { world_.step(); }
  std::unique_ptr<sys::Poller> poller() override { return network_.at("client").poller(); }

 private:
  sim::World world_;
  sim::Network network_;
};

/// A connection that lets itself be tampered with. `what` outlives it.
class Tap final : public sys::Connection {
 public:
  struct What {
    std::size_t at_most = SIZE_MAX;  // bytes in one call
    std::size_t budget = SIZE_MAX;   // bytes it still takes to write
    std::size_t flip = SIZE_MAX;     // which byte of those written is changed
    bool cut = false;                // reads and writes as if the cable were gone
    std::size_t read = 0;            // bytes
    Bytes written;                   // all of them if `keep`
    bool keep = false;
    std::size_t wrote = 0;
  };
  Tap(std::unique_ptr<sys::Connection> inner, What& what) : inner_(std::move(inner)), what_(what) {}

  sys::Transfer read(std::span<std::byte> into) noexcept override {
    if (what_.cut) return {};
    const auto moved = inner_->read(into.first(std::min(into.size(), what_.at_most)));
    what_.read += moved.bytes;
    return moved;
  }
  sys::Transfer write(std::span<const std::byte> from) noexcept override {
    if (what_.cut) return {};
    const std::size_t size = std::min({from.size(), what_.at_most, what_.budget});
    if (size == 0) return {};
    Bytes bytes(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(size));
    if (what_.flip >= what_.wrote && what_.flip - what_.wrote < size) {
      bytes[what_.flip - what_.wrote] ^= std::byte{1};
    }
    const auto moved = inner_->write(bytes);
    bytes.resize(moved.bytes);
    if (what_.keep) what_.written.insert(what_.written.end(), bytes.begin(), bytes.end());
    if (what_.budget != SIZE_MAX) what_.budget -= moved.bytes;
    what_.wrote += moved.bytes;
    return moved;
  }
  void shutdown_write() noexcept override { inner_->shutdown_write(); }
  [[nodiscard]] Status error() const override { return inner_->error(); }
  [[nodiscard]] std::string peer() const override { return inner_->peer(); }
  [[nodiscard]] sys::Connection& underlying() noexcept override { return inner_->underlying(); }

 private:
  std::unique_ptr<sys::Connection> inner_;
  What& what_;
};

inline Bytes pattern(std::size_t size, unsigned seed) {
  Bytes bytes(size);
  std::uint32_t x = seed * 2654435761U + 1;
  for (std::byte& b : bytes) {
    x = x * 1664525U + 1013904223U;
    b = static_cast<std::byte>(x >> 24);
  }
  return bytes;
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace lockstep::transport
