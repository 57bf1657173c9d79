// Control: which ranks are alive, and why a generation ends. One per rank, beside the data path.
//
// The hub is the lowest rank that has not left: rank 0 at first. Every rank has a control connection
// to the hub and to its two neighbours in the ring of ranks (control_peers). When ranks leave, those
// that stay connect to the new hub and close the ring (lacking(), connect()). Until then a rank that
// has left passes on what its peers say, as long as its process lives. On each connection:
//
//  1. A pulse goes out every Timing::pulse. A peer that is unheard for Timing::suspect is worth a
//     warning; after Timing::dead it is lost. So is a peer whose connection ends without a goodbye.
//     With many ranks, the hub and the ranks that are not its neighbours exchange pulses more
//     rarely, and allow for that.
//  2. A rank that sees a reason to end the generation proposes it to its control peers, which pass
//     it on. Reasons are a lost peer, a disagreement and an abort by the user: whatever was given to
//     Failure::report.
//  3. The hub makes the first proposal it sees the verdict. If that is a lost rank, the verdict
//     names all ranks that are lost within Timing::gather. It is what Failure::set gets on every
//     rank, so all survivors name the same culprits in the same words.
//  4. If the hub is lost, the others wait for Timing::settle. In that time the proposals go around
//     the ring, and a verdict too, if the hub gave one. Then all take the same proposal: a lost hub
//     first, then the one noticed by the lowest rank. A rank that has left waits twice as long, so
//     that the ranks that stay decide.
//  5. A rank that hears none of its peers is cut off. It ends its own generation and tells no other
//     rank, since a word that gets through after all would blame ranks that are alive.
//
// A pulse says what operation the sender is at, with a digest of all operations before. Ranks whose
// digests differ have made different calls, even if their data never met: that is a proposal, too.
// So is a rank that leaves after another number of operations.
//
// With its pulse each rank tells the hub where it stands in the groups in which it has begun
// something last. When some ranks of a group have kept the others waiting for two pulses, the hub
// tells the members where each one stands, so that a waiting rank knows for which ranks: late().
//
// A rank that closes its session of one group sends a departure; when it has closed all of them, a
// goodbye. Both are passed on to all ranks, together with those of other ranks of the same moment.
// missing() asks for them in a wait.
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
  /// That rank does not listen any more: its address refuses calls, or belongs to another process.
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
  /// Tells a peer what it may have missed before this connection was made.
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
  /// The largest spacing at which no rank is suspected.
  [[nodiscard]] int rarest_pulse() const noexcept;
  /// Since when a pulse of that peer would be late.
  [[nodiscard]] Time silent_since(const Peer& peer) const noexcept;
  void lose(Peer& peer, const std::string& how);
  [[nodiscard]] std::string name(const Peer& peer) const;
  [[nodiscard]] std::string name(int rank) const;
  void propose(const wire::Abort& abort, const Peer* from);
  void decide(Time now);
  [[nodiscard]] Duration patience() const noexcept;
  /// Two ranks disagree, and the pulses of the others can tell which of them is right.
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
