// Traffic: a process's network that counts what goes in and out.
//
//   Traffic traffic;
//   CountedNetwork network(simulated.at("host0"), traffic);
//
// Borrows the network and the counts. Pollers, listeners and connections of it belong together. Thread
// rule: that of the network.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "sys/net.h"

namespace lockstep::simulated {

struct Traffic {
  std::uint64_t frames_out = 0;
  std::uint64_t frames_in = 0;
  std::uint64_t bytes_out = 0;
  std::uint64_t bytes_in = 0;
  std::int64_t connections = 0;  // open now

  friend Traffic operator-(Traffic a, const Traffic& b) noexcept {
    a.frames_out -= b.frames_out;
    a.frames_in -= b.frames_in;
    a.bytes_out -= b.bytes_out;
    a.bytes_in -= b.bytes_in;
    return a;  // connections are a level
  }
};

class CountedNetwork final : public sys::Network {
 public:
  CountedNetwork(sys::Network& inner, Traffic& traffic) : inner_(inner), traffic_(traffic) {}
  std::unique_ptr<sys::Listener> listen(const std::string& address) override;
  std::unique_ptr<sys::Connection> connect(const std::string& address) override;
  std::unique_ptr<sys::Poller> poller() override;

 private:
  sys::Network& inner_;
  Traffic& traffic_;
};

}  // namespace lockstep::simulated
