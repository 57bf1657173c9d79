// Callers that send bytes from memory to a door, and what a good one says.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "sys/net.h"
#include "wire/frame.h"
#include "wire/hello.h"

namespace lockstep::coll {

/// Sends its bytes in pieces of that size, then ends.
class MemoryCaller final : public sys::Connection {
 public:
  MemoryCaller(std::vector<std::byte> bytes, std::size_t piece, std::string peer = "memory")
      : bytes_(std::move(bytes)), piece_(piece), peer_(std::move(peer)) {}

  sys::Transfer read(std::span<std::byte> into) noexcept override {
    if (at_ == bytes_.size()) return {0, sys::Transfer::State::closed};
    blocked_ = !blocked_;  // every second call finds nothing yet
    if (blocked_) return {};
    const std::size_t size = std::min({into.size(), piece_, bytes_.size() - at_});
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at_), size, into.begin());
    at_ += size;
    return {size, sys::Transfer::State::open};
  }
  sys::Transfer write(std::span<const std::byte> from) noexcept override {
    return {from.size(), sys::Transfer::State::open};
  }
  void shutdown_write() noexcept override {}
  [[nodiscard]] Status error() const override { return {}; }
  [[nodiscard]] std::string peer() const override { return peer_; }
  [[nodiscard]] std::size_t taken() const noexcept { return at_; }

 private:
  std::vector<std::byte> bytes_;
  std::size_t piece_;
  std::string peer_;
  std::size_t at_ = 0;
  bool blocked_ = false;
};

/// A network in which these call, one after the other, wherever somebody listens.
class MemoryCallers final : public sys::Network {
 public:
  void add(std::unique_ptr<sys::Connection> caller) { callers_.push_back(std::move(caller)); }

  std::unique_ptr<sys::Listener> listen(const std::string& address) override {
    class Queue final : public sys::Listener {
     public:
      Queue(std::deque<std::unique_ptr<sys::Connection>>& callers, std::string address)
          : callers_(callers), address_(std::move(address)) {}
      std::unique_ptr<sys::Connection> accept() override {
        if (callers_.empty()) return nullptr;
        auto first = std::move(callers_.front());
        callers_.pop_front();
        return first;
      }
      [[nodiscard]] std::string address() const override { return address_; }

     private:
      std::deque<std::unique_ptr<sys::Connection>>& callers_;
      std::string address_;
    };
    return std::make_unique<Queue>(callers_, address);
  }
  std::unique_ptr<sys::Connection> connect(const std::string& /*address*/) override {
    std::abort();
  }
  std::unique_ptr<sys::Poller> poller() override { std::abort(); }

 private:
  std::deque<std::unique_ptr<sys::Connection>> callers_;
};

inline std::vector<std::byte> frame(wire::FrameType type, std::span<const std::byte> payload) {
  std::vector<std::byte> bytes(wire::kHeaderBytes);
  wire::encode({.type = type,
                .generation = 0,
                .sequence = 0,
                .length = static_cast<std::uint32_t>(payload.size()),
                .crc = crc32c(payload)},
               std::span(bytes).first<wire::kHeaderBytes>());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

/// What a rank of ours says first.
inline std::vector<std::byte> good_greeting() {
  wire::Hello hello;
  hello.rank = 1;
  hello.size = 2;
  hello.set_host_name("node1");
  hello.set_address("node1:4000");
  return frame(wire::FrameType::hello, wire::encode(hello));
}

}  // namespace lockstep::coll
