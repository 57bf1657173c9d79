// Relay: stands between a rank and those who call it, passes on what both sides say, and alters one
// bit of it, or cuts a connection, when it is told to. Give the cluster its address instead of the
// rank's, and the rank LOCKSTEP_BIND.
//
//   Relay relay("127.0.0.1:4001");          // where the rank listens
//   relay.flip(Relay::What::data_frame);    // of the next one that passes, in either direction
//
// A thread of its own does the work. Any thread may call any member.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "sys/posix_net.h"

namespace lockstep::processes {

class Relay {
 public:
  enum class What : std::uint8_t {
    nothing,
    data_frame,     // a byte of the payload of a large data frame that passes in plain text
    control_frame,  // the same of a pulse
    tls_data,       // a byte of what passes on a data connection, whatever it is
    cut,            // not a bit: a connection under TLS that carries data breaks
  };

  explicit Relay(std::string rank);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  [[nodiscard]] std::string address() const { return listener_->address(); }
  /// The next one of these, once.
  void flip(What what) noexcept { what_.store(what); }
  /// When it was done, by now_us(); 0 before.
  [[nodiscard]] std::int64_t flipped_us() const noexcept { return flipped_us_.load(); }

 private:
  struct Direction {
    sys::Connection& from;
    sys::Connection& to;
    std::vector<std::byte> bytes = {};  // read and not written yet
    std::size_t written = 0;
    bool over = false;  // nothing more will be read
  };
  struct Call {
    std::unique_ptr<sys::Connection> caller;
    std::unique_ptr<sys::Connection> rank;
    Direction there;
    Direction back;
    bool began = false;    // something has passed
    bool is_data = false;  // of TLS: the caller says so in clear
    bool broken = false;
  };

  void run(const std::stop_token& stop);
  bool pass_on(Call& call, Direction& direction);
  void look_at(Call& call, std::span<std::byte> bytes);

  sys::PosixNetwork network_;
  std::unique_ptr<sys::Listener> listener_;
  std::string rank_;
  std::list<Call> calls_;
  std::atomic<What> what_ = What::nothing;
  std::atomic<std::int64_t> flipped_us_ = 0;
  std::jthread thread_;  // last: it uses all the others
};

}  // namespace lockstep::processes
