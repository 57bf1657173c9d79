// Presence: a rank's standing in a generation beyond its operations: its control connections and
// the thread that serves them, its open door for data connections, and what ended the generation.
//
// The thread keeps a Presence alive until all ranks have left or the generation has failed, so that
// whoever closes a session need not wait. When the process ends, the thread gets a moment to say
// its last word (farewell.h).
//
// Thread rule: any thread; the control plane itself is the thread's.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "base/gate.h"
#include "base/mutex.h"
#include "coll/control.h"
#include "coll/door.h"
#include "coll/greeting.h"
#include "coll/roster.h"
#include "sys/net.h"
#include "transport/failure.h"
#include "transport/history.h"

namespace lockstep::coll {

class Presence : public std::enable_shared_from_this<Presence> {
 public:
  struct Setup {
    Roster roster;
    std::unique_ptr<sys::Network> network;
    std::vector<std::unique_ptr<Door>> doors;
    std::vector<std::unique_ptr<sys::Connection>> control;  // by rank; null but for control_peers
    std::vector<Visitor> early;               // data connections that came before the thread
    std::string wire = "tcp";                 // what connects machines, in words
    wire::Check check = wire::Check::crc32c;  // of data that travels between machines
    Timing timing;
    /// For the last word to be heard by everybody; a peer that is silent never confirms it.
    Duration last_word = std::chrono::seconds(5);
    bool compares_histories = false;
    /// Opens a connection to that rank, ready to send; it has not greeted yet. Null: try again.
    std::function<std::unique_ptr<sys::Connection>(int rank)> connect;
    /// The same for a control connection, which a rank that stays needs when others have left.
    std::function<std::unique_ptr<sys::Connection>(int rank)> connect_control;
    /// Wakes whoever sleeps in shared memory: the generation has failed, or a rank has left a
    /// group.
    std::function<void()> wake;
  };
  explicit Presence(Setup setup);
  ~Presence();
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;

  /// Starts the thread. SystemError if there is none to be had.
  void start();
  /// This rank takes part in nothing more. Returns at once; the door is closed soon.
  void leave() noexcept;

  [[nodiscard]] const Roster& roster() const noexcept { return roster_; }
  [[nodiscard]] const std::string& wire() const noexcept { return wire_; }
  /// After so long without a pulse a rank is given up.
  [[nodiscard]] Duration dead_after() const noexcept { return dead_after_; }
  /// What the frames of the data connection to this rank must have; that rank knows the same.
  [[nodiscard]] wire::Check check_with(int rank) const;
  [[nodiscard]] sys::Network& network() noexcept { return *network_; }
  [[nodiscard]] transport::Failure& failure() noexcept { return failure_; }
  [[nodiscard]] transport::History& history() noexcept { return history_; }
  /// PeerLost if that rank has left and this operation of the group waits for it in vain.
  [[nodiscard]] Status missing(int rank, std::uint64_t group, const wire::Descriptor& operation,
                               DataPath path) const {
    return control_.missing(rank, group, operation, path);
  }
  /// The rank has closed its session of that group.
  [[nodiscard]] bool has_left(int rank, std::uint64_t group) const {
    return control_.has_left(rank, group);
  }
  /// Ranks that keep this operation of the group waiting; empty if that is not known.
  [[nodiscard]] std::vector<int> late(std::uint64_t group, std::uint64_t sequence) const {
    return control_.late(group, sequence);
  }
  /// Where the group's link says which operation it has begun last, for late().
  Standings::Counter enter_group(std::uint64_t group) { return control_.enter_group(group); }
  /// This rank takes no part in the group's operations from `next` on.
  void leave_group(std::uint64_t group, std::uint64_t next) noexcept;

  /// The data connection of a group to a rank; null: not there yet, ask again. The rank with the
  /// higher number calls, the other one waits for it.
  std::unique_ptr<sys::Connection> data_connection(std::uint64_t group, int rank);
  /// Woken when a data connection has arrived or the generation has failed; until forgotten.
  void wake_on_change(sys::Poller* poller);
  void forget(sys::Poller* poller) noexcept;

 private:
  void run(const std::stop_token& stop);
  void serve(const std::stop_token& stop);
  /// Until something has to be done; which control connections can be read.
  std::span<sys::Connection* const> wait_until(Time next);
  /// Calls the ranks that the control plane lacks; when to do so again.
  Time call_peers(Time now);
  void call(int rank, Time now);
  void adopt(int rank, std::unique_ptr<sys::Connection> connection);
  void watch(sys::Connection& connection);
  /// Wakes the thread.
  void wake() noexcept;
  /// The thread cannot go on: makes that the generation's end, as far as it still can.
  void end_generation(const Status& why, const std::stop_token& stop) noexcept;
  void close_doors() noexcept;
  void shutdown_connections() noexcept;
  void receive(Visitor visitor);
  /// Why that caller gets no connection; ok if it does.
  [[nodiscard]] Status objection(const wire::Hello& hello) const;
  /// True if this process has not been told of before: one that waits calls again and again.
  bool note_claimant(std::uint64_t incarnation);
  void wake_pollers() noexcept;

  Roster roster_;
  Duration dead_after_;
  Duration last_word_;
  std::string wire_;
  wire::Check check_;
  std::unique_ptr<sys::Network> network_;
  std::vector<std::unique_ptr<Door>> doors_;
  std::vector<std::unique_ptr<sys::Connection>> connections_;
  std::deque<std::uint64_t> claimants_;  // incarnations, the latest ones: see note_claimant()
  std::vector<bool> over_;               // by connection: at its end; the thread's own
  std::function<std::unique_ptr<sys::Connection>(int)> connect_;
  std::function<std::unique_ptr<sys::Connection>(int)> connect_control_;
  struct Call {
    std::unique_ptr<sys::Connection> connection;  // null: none is under way
    std::unique_ptr<Greeting> greeting;
    Time called{};
    Time next_try{};
  };
  std::map<int, Call> calls_;  // by rank; the thread's own
  transport::Failure failure_;
  transport::History history_;
  Control control_;
  // The thread's: everything it waits for, and what it waits for between two looks at the pulses.
  std::unique_ptr<sys::Poller> poller_;
  std::unique_ptr<sys::Poller> urgent_;
  int watched_ = 0;  // control connections
  Time next_look_{};
  std::atomic<bool> leaving_ = false;
  std::atomic<bool> closed_ = false;  // the doors
  Gate closing_;
  Mutex mutex_;
  std::map<std::pair<std::uint64_t, int>, std::unique_ptr<sys::Connection>> arrived_
      GUARDED_BY(mutex_);
  std::vector<sys::Poller*> pollers_ GUARDED_BY(mutex_);
};

}  // namespace lockstep::coll
