// Joiner: how processes become a generation. One object for one attempt, on the caller's thread.
//
//   1. Every rank opens its door, and calls rank 0 with a Hello.
//   2. Rank 0 compares what they were given. When all are there it sends everybody's Hello to
//      everybody: the roster (wire/members.h).
//   3. Ranks meet their neighbours in the control ring, and those of one host share a segment.
//   4. Each tells rank 0 that it is ready; when all are, rank 0 tells them so.
// Whoever fails in between tells rank 0, and rank 0 everybody.
//
// A rank that waits sleeps until something arrives or a time comes.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/deadline.h"
#include "coll/door.h"
#include "coll/presence.h"
#include "coll/protection.h"
#include "coll/roster.h"
#include "lockstep/coll/join.h"
#include "transport/shm.h"
#include "wire/members.h"

namespace lockstep::coll {

struct Joined {
  std::shared_ptr<Presence> presence;
  std::shared_ptr<transport::ShmHost> host;  // null: alone on its host
};

/// The process that joins: its network, and what the others know it by.
struct JoiningProcess {
  std::unique_ptr<sys::Network> network;
  std::uint32_t pid = 0;
  std::uint32_t started = 0;  // in seconds since 1970
  std::uint64_t host = 0;     // sys::host_identity()
  std::string host_name;
  std::uint64_t incarnation = 0;                     // no other process ever has it
  std::atomic<std::uint64_t>* generation = nullptr;  // its last one; outlives the joiner

  /// The one that calls.
  static JoiningProcess real(const JoinOptions& options);
};

/// The session of all ranks of a generation that was joined with these options.
[[nodiscard]] Session session_of(const Joined& joined, const JoinOptions& options);

class Joiner {
 public:
  explicit Joiner(const JoinOptions& options) : Joiner(options, JoiningProcess::real(options)) {}
  Joiner(const JoinOptions& options, JoiningProcess process);
  ~Joiner();
  Joiner(const Joiner&) = delete;
  Joiner& operator=(const Joiner&) = delete;

  /// Throws what went wrong, after having told the others.
  Joined run();

 private:
  static constexpr auto kCallAgain = std::chrono::milliseconds(50);

  /// A rank on the line: on rank 0 each other one, elsewhere rank 0.
  struct Line {
    std::unique_ptr<sys::Connection> connection;
    std::unique_ptr<Greeting> greeting;
    wire::Hello hello;
    bool heard = false;  // it has said something: on other ranks that rank 0 keeps this line
    bool ready = false;
  };

  void check_addresses();
  /// SystemError if the address is taken; of another process of this rank it has heard then, and that
  /// process of it.
  void open_doors();
  void listen();
  /// Which process has this rank, as rank 0 says; empty if it does not know. Takes a second at most.
  [[nodiscard]] std::string ask_for_holder();
  /// ConfigError if others would look for this rank elsewhere.
  void check_loopback(const std::string& entry) const;
  void close_spare_door();
  void gather();
  void consider(Visitor visitor);
  void call_rank_0();
  /// Until it has answered and knows who calls.
  void reach_rank_0();
  void meet_neighbours();
  void share_memory();
  void agree_to_start();

  /// What a wait waits for, for messages: in words, and the ranks it depends on.
  struct Lack {
    std::string what;
    std::vector<int> ranks = {};
  };
  /// Serves the doors and the lines until the condition holds; Timeout with `lack` at the deadline.
  /// The condition is asked whenever something has arrived, and when it has asked for it by
  /// look_by().
  void until(const std::function<bool()>& holds, const std::function<Lack()>& lack);
  void look_by(Time when) noexcept { look_ = std::min(look_, when); }
  /// Why callers were sent away, if any were.
  [[nodiscard]] std::string refusals() const;
  void serve_doors();
  void serve_lines();
  void handle(int rank, Line& line);
  /// Rank 0 will say who is missing: this rank need not log that it waits.
  void rank_0_speaks();
  /// Throws what the end of that line means.
  [[noreturn]] void lost(int rank, const Line& line);
  void tell_everybody(const Status& why) noexcept;
  std::optional<Visitor> take_visitor(wire::Purpose purpose, int rank);
  /// Starts calling a rank.
  [[nodiscard]] std::unique_ptr<sys::Connection> connect(const std::string& address, int rank);
  /// Calls until somebody answers; for ranks that are known to listen.
  std::unique_ptr<sys::Connection> call(const std::string& address, int rank,
                                        wire::Purpose purpose);
  /// What callers from other machines have to pass.
  [[nodiscard]] Door::Guard guard() const;
  [[nodiscard]] Lack missing() const;
  [[nodiscard]] int size() const noexcept { return static_cast<int>(addresses_.size()); }

  JoinOptions options_;
  std::vector<std::string> addresses_;  // by rank; what is dialled
  std::unique_ptr<sys::Network> network_;
  std::atomic<std::uint64_t>& last_generation_;
  std::unique_ptr<sys::Poller> poller_;
  MonotonicClock clock_;
  Time began_;
  Deadline deadline_;
  Time next_notice_;
  Time look_ = Time::max();  // when to ask the condition again if nothing arrives
  wire::Hello own_;
  std::shared_ptr<Protection> protection_;  // null: none
  std::vector<std::unique_ptr<Door>> doors_;
  std::map<int, Line> lines_;
  std::vector<Visitor> visitors_;
  std::vector<std::string> refused_;  // the last few
  int hang_ups_ = 0;                  // of rank 0, before it had answered
  std::string called_again_;          // what rank 0 said last to a rank that shall call again
  std::string given_;                 // what rank 0 was given, if it refuses this rank
  Roster roster_;
  wire::Members members_;  // of the roster, as they arrive
  std::vector<std::unique_ptr<sys::Connection>> control_;
  std::shared_ptr<transport::ShmHost> host_;
};

}  // namespace lockstep::coll
