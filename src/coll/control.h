// Control: who is alive, and why a generation ends. One per rank, beside the data path.
//
// Every rank has a control connection to rank 0 and to its two neighbours in the ring of ranks
// (control_peers). When ranks leave, those that stay connect to the lowest of them, which does what
// rank 0 did, and close the ring: read "rank 0" below as "the lowest rank that has not left". A rank
// that has left still passes on what others say for as long as its process lives, so that there is
// time for that (lacking(), connect()). On each connection:
//
//  1. A pulse goes out every Timing::pulse. A peer unheard for Timing::suspect is worth a warning,
//     for Timing::dead it is lost. So is one whose connection ends without a goodbye. Where there
//     are many ranks, rank 0 and those that are not its neighbours exchange pulses more rarely, and
//     allow for that.
//  2. A rank that sees a reason to end the generation (a lost peer, a disagreement, an abort by the
//     user: whatever was given to Failure::report) proposes it to its control peers, who pass it
//     on.
//  3. Rank 0 makes the first proposal it sees the verdict; if that is a lost rank, together with
//  all
//     that are lost within Timing::gather. The verdict is what Failure::set gets on every rank, so
//     all survivors name the same culprits in the same words.
//  4. If rank 0 is lost the others wait for Timing::settle, in which the proposals and a verdict
//     rank 0 may have given go around the ring, and all take the same one: a lost rank 0 first, then
//     the one noticed by the lowest rank. A rank that has left waits twice as long: those that stay
//     decide.
//  5. A rank that hears none of its peers is cut off: it ends its own generation and tells nobody,
//     since a word that gets through after all would blame the living.
//
// A pulse says what operation the sender is at, with a digest of all before. Ranks whose digests
// differ have made different calls, even if their data never met: a proposal, too. So have ranks
// that leave after different numbers of operations.
//
// With its pulse each rank tells rank 0 where it stands in the groups in which it has begun
// something last. When some ranks of a group have kept the others waiting for two pulses, rank 0
// tells its members where each one stands, so that whoever waits knows for whom: late().
//
// A rank that closes its session of one group says so (a departure), and when it has closed all of
// them, goodbye. Both are passed on to everybody, together with those of other ranks of the same
// moment, and asked for by missing() in a wait.
//
//   Control control({.rank = 0, .size = 4, .failure = &failure, .peers = connections});
//   loop: control.poll(clock.now()); sleep until control.next_poll() or a connection is ready
//
// Borrows everything in Setup. Never blocks and reads no clock. Thread rule: one thread; left(),
// has_left(), missing(), late(), enter_group() and leave_group() from any.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "coll/census.h"
#include "coll/departures.h"
#include "coll/standings.h"
#include "sys/net.h"
#include "transport/failure.h"
#include "transport/history.h"
#include "wire/abort.h"
#include "wire/frame.h"

namespace lockstep::coll {

struct Timing {
  Duration pulse = std::chrono::milliseconds(100);
  Duration suspect = std::chrono::seconds(1);
  Duration dead = std::chrono::seconds(3);
  Duration settle = std::chrono::milliseconds(50);
  Duration gather = std::chrono::milliseconds(10);
};

/// The ranks with which a rank has a control connection, ascending.
std::vector<int> control_peers(int rank, int size);
/// The same while only these ranks are there, ascending, itself among them.
std::vector<int> control_peers(int rank, std::span<const int> present);

enum class DataPath : std::uint8_t { open, over };

class Control {
 public:
  struct Setup {
    int rank = 0;
    int size = 1;
    std::uint64_t generation = 0;
    transport::Failure* failure = nullptr;
    const transport::History* history = nullptr;  // null: nothing to compare
    std::vector<sys::Connection*> peers;          // by rank; null but for control_peers
    std::vector<std::string> names = {};          // by rank, for messages; empty: their addresses
    Timing timing;
    std::function<void()> on_departure = {};  // another rank has left a group
  };
  explicit Control(const Setup& setup);
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  /// Reads, judges, writes. Time spent away from it is not counted against the peers.
  void poll(Time now);
  /// The same, but reads only these of the connections: the others have nothing to be read.
  void poll(Time now, std::span<sys::Connection* const> readable);
  /// When poll() has something to do even if no connection is ready.
  [[nodiscard]] Time next_poll() const noexcept;

  /// Ranks to which this one needs a connection, since others have left: connect() is waited for.
  /// It calls those that are lower. The higher ones call; it looks whether they are there.
  [[nodiscard]] std::vector<int> lacking() const;
  /// Nobody listens where that rank did, or somebody else.
  void refused(int rank) noexcept;
  /// Whether a connection with that rank is of use; false if there is one.
  [[nodiscard]] bool lacks(int rank) const noexcept;
  /// A connection with a rank that this one has called, or that has called. Borrowed; the one before
  /// is not used any more.
  void connect(int rank, sys::Connection& connection, Time now);

  /// This rank's operations of the group are counted there, for late(), until the counter is gone.
  Standings::Counter enter_group(std::uint64_t group) { return standings_.enter(group); }
  /// This rank takes no part in the group's operations from `next` on. Told at the next poll().
  void leave_group(std::uint64_t group, std::uint64_t next) {
    departures_.leave(rank_, group, next);
  }
  /// Text for the log of that rank, if this one has a control connection to it.
  void notify(int rank, const std::string& text);
  /// This rank leaves in good order: it takes no part in operations from `next` on.
  void goodbye(std::uint64_t next);
  /// The generation has failed, or this rank and all its control peers have left: there is nothing
  /// more to say.
  [[nodiscard]] bool has_said_all() const noexcept;
  /// There is a reason why the generation ends, or has ended.
  [[nodiscard]] bool is_ending() const noexcept { return concluded_ || proposal_.has_value(); }
  /// After a goodbye or a failure: keep polling until this holds. Once has_said_all() holds you may
  /// give up when you cannot afford more time (a silent peer never answers). Then every peer has
  /// read all we said and closed its side. A connection closed earlier, with bytes unread, may take
  /// the last word back from the peer.
  [[nodiscard]] bool may_leave() const noexcept;
  /// Empty while the rank is here; else the first operation it takes no part in. An operation with
  /// that number or a later one waits for it in vain: see missing().
  [[nodiscard]] std::optional<std::uint64_t> left(int peer) const noexcept;
  /// The rank has closed its session of that group.
  [[nodiscard]] bool has_left(int peer, std::uint64_t group) const {
    return first_missed(peer, group).has_value();
  }
  /// Nothing more will be read from this control peer.
  [[nodiscard]] bool is_over(int peer) const noexcept;
  /// PeerLost if the rank, for which this operation of the group waits, has left and nothing more
  /// of it can come; ok otherwise. The data connection may still hold what it sent before it left;
  /// `over` says that it does not (StreamLink::suspect).
  [[nodiscard]] Status missing(int peer, std::uint64_t group, const wire::Descriptor& operation,
                               DataPath path) const;
  /// Ranks that have not begun this operation of the group, which this rank has; empty if that is
  /// not known (yet).
  [[nodiscard]] std::vector<int> late(std::uint64_t group, std::uint64_t sequence) const {
    return standings_.behind(group, rank_, sequence);
  }

 private:
  struct Peer;

  /// Before anything is read at that time.
  void begin_poll(Time now);
  /// Judges and writes.
  void end_poll(Time now);
  void hear(Peer& peer, Time now);
  void handle(Peer& peer, const wire::FrameReader& frame);
  void note(const wire::Departure& departure, const Peer& from);
  void note_goodbye(int rank, std::uint64_t next);
  /// What a peer has to know with which a connection is new.
  void brief(Peer& peer);
  void look_for_peers(Time now);
  void look_for_hub() noexcept;
  [[nodiscard]] bool is_hub() const noexcept { return rank_ == hub_; }
  void tell_departures(Time now);
  [[nodiscard]] std::optional<std::uint64_t> first_missed(int peer, std::uint64_t group) const;
  void compare_histories();
  void compare(int rank, const wire::Pulse& theirs);
  void judge_silence(Time now);
  void cut_off(Time now);
  [[nodiscard]] bool needed(const Peer& peer) const noexcept;
  /// Null: no control peer.
  [[nodiscard]] Peer* find(int rank) const noexcept;
  /// Only one of so many pulses is sent to that peer, and by it.
  [[nodiscard]] int spacing_of_pulses(const Peer& peer) const noexcept;
  /// Between the hub and ranks that are not its neighbours, where there are many ranks.
  [[nodiscard]] int hub_spacing() const noexcept;
  /// Such that nobody is suspected for it.
  [[nodiscard]] int rarest_pulse() const noexcept;
  /// Since when a pulse of that peer would be late.
  [[nodiscard]] Time silent_since(const Peer& peer) const noexcept;
  void lose(Peer& peer, const std::string& how);
  [[nodiscard]] std::string name(const Peer& peer) const;
  [[nodiscard]] std::string name(int rank) const;
  void propose(const wire::Abort& abort, const Peer* from);
  void decide(Time now);
  [[nodiscard]] Duration patience() const noexcept;
  /// Two ranks disagree, and who is right is for the others' pulses to say.
  [[nodiscard]] bool is_undecided(const Status& cause) const noexcept;
  /// The same disagreement with the requests of all ranks that are at it, if those blame fewer.
  [[nodiscard]] Status with_all_requests(const Status& cause) const;
  /// If it is about the last operation of all ranks.
  [[nodiscard]] Status with_latest_requests(const Status& cause) const;
  void conclude(const wire::Abort& verdict, const Peer* from);
  void send_pulses(Time now);
  void tell_standings(Time now);
  void send_to_all(wire::FrameType type, std::span<const std::byte> payload, const Peer* but);
  [[nodiscard]] wire::Pulse standing() const;
  [[nodiscard]] bool decider_gone() const noexcept;

  int rank_;
  int size_;
  std::uint64_t generation_;
  transport::Failure& failure_;
  const transport::History* history_;
  std::vector<std::string> names_;
  Timing timing_;
  std::function<void()> on_departure_;
  std::vector<int> present_;                  // have not left, as far as is known; ascending
  int hub_ = 0;                               // the lowest of them
  std::vector<std::unique_ptr<Peer>> peers_;  // control peers, ascending
  std::unordered_map<const sys::Connection*, Peer*> by_connection_;
  std::unique_ptr<std::atomic<std::uint64_t>[]> left_;  // per rank; kHere until it leaves
  std::unique_ptr<std::atomic<bool>[]> silent_;  // per rank: it has left, and is not heard any more
  Departures departures_;
  struct News {
    wire::Departure departure;
    const Peer* from;  // null: this rank
  };
  std::vector<News> news_;  // departures to be passed on
  Time next_telling_{};
  std::vector<std::optional<wire::Pulse>>
      unchecked_;  // per rank: where it stands, not compared yet
  std::vector<std::optional<wire::Descriptor>> latest_;  // per rank: of its last pulse
  Standings standings_;
  std::vector<wire::Position> told_;  // to the hub: where this one stands
  int told_to_ = -1;
  Census census_;  // the hub's
  Time last_poll_{};
  Time next_pulse_{};
  unsigned pulses_ = 0;
  bool started_ = false;
  bool cut_off_ = false;
  bool taken_up_ = false;  // what Failure::report got has been proposed
  std::optional<wire::Abort> proposal_;
  std::optional<wire::Abort> verdict_;
  struct Lack {
    Time since;
    bool refused = false;
    bool given_up = false;
  };
  std::optional<Time> settled_;    // when the verdict is due, if this rank is to give it
  std::map<int, Lack> lacks_;      // by rank: wanted as a peer and not connected, since then
  std::optional<Time> repair_at_;  // connections are missing from then on, for ranks have left
  bool concluded_ = false;
};

}  // namespace lockstep::coll
