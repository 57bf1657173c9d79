// The stream transport: ranks that reach each other by byte streams, one connection a pair.
//
// Each operation announces itself on a connection, with its descriptor, before its first byte of
// data there. Data is written from the caller's memory and read into posted memory; what a peer
// sends ahead of time stays in the connection, which slows the peer down and needs no memory here.
//
//   StreamLink link({.rank = 0, .size = 2, .generation = 1, .failure = &failure, .clock = &clock,
//                    .peers = {nullptr, connection.get()}});
//
// A connection that closes or breaks does not end the generation: its rank becomes a suspect and
// operations that need it stay pending. The control plane (coll/control.h) tells who died; the rank
// whose sockets closed first may just have failed because of another. If nobody has failed for
// path_patience, it was the path: PeerLost, too.
//
// Packets may be lost without a word while both ranks are well. A rank that waits looks at all its
// connections. Bytes that the peer's machine has not acknowledged for path_patience and a quarter of
// it end the generation with PeerLost, which names the link and the direction; if nothing arrives
// from there either, the direction is not known, and it takes path_patience and a half of it.
//
// Where a connection may alter bytes unnoticed (Setup::checks), every frame has a CRC-32C. It is
// added up as the bytes arrive, and compared before the last of a frame's is delivered: a receive
// of all that a peer sent at once is complete only if it is what was sent. A wrong one fails the
// generation with DataError, as a connection does that finds out by itself (TLS).
//
// Borrows everything in Setup. Thread rule: one thread drives the link; fail(), failed(),
// failure(), has_left() and history() from any thread. Nothing blocks but wait().
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/gate.h"
#include "sys/net.h"
#include "transport/begun.h"
#include "transport/failure.h"
#include "transport/history.h"
#include "transport/link.h"
#include "wire/frame.h"

namespace lockstep::transport {

class StreamLink final : public Link {
 public:
  struct Setup {
    int rank = 0;
    int size = 1;
    std::uint64_t generation = 0;
    Failure* failure = nullptr;
    const Clock* clock = nullptr;
    std::vector<sys::Connection*> peers;   // by rank; null: never used
    std::vector<wire::Check> checks = {};  // by rank, the same at both ends; empty: none
    sys::Poller* poller = nullptr;         // for wait(); null: wait() polls
    History* history = nullptr;            // null: one of its own
    std::vector<int> members = {};         // ranks of the generation; empty: the group is all
    /// Why this rank, for which the operation waits, will never come; ok if it may. `over`: its
    /// data connection is at its end.
    std::function<Status(int rank, const wire::Descriptor& operation, bool over)> gone = {};
    /// That rank of the generation has closed its session of the group.
    std::function<bool(int rank)> has_left = {};
    /// Ranks that have not begun the operation that this one is in, as far as is known.
    std::function<std::vector<int>(std::uint64_t sequence)> late = {};
    /// Where the link says which operation it has begun last; null: nobody wants to know.
    std::shared_ptr<Begun> begun = {};
    /// Tells the others that this rank takes no part in operations from `next` on.
    std::function<void(std::uint64_t next)> leave = {};
    /// How long a rank may seem well after the data connection to it broke.
    Duration path_patience = std::chrono::seconds(3);
    SpinPolicy spin = {};
    std::shared_ptr<void> borrowed = {};  // kept until the end, if somebody must
  };
  explicit StreamLink(const Setup& setup);
  ~StreamLink() override;

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(peers_.size()); }
  [[nodiscard]] const History& history() const noexcept { return *history_; }
  /// The connection to this peer closed or broke. It may have died, or left.
  [[nodiscard]] bool suspect(int peer) const noexcept;

  [[nodiscard]] plan::Access access(const Exposure& /*mine*/) const noexcept override {
    return plan::Access::messages;
  }
  int begin(const wire::Descriptor& descriptor, const Exposure& mine, std::size_t slot) override;
  int offer(const wire::Descriptor& descriptor, std::size_t slot, std::span<const std::byte> data,
            std::uint32_t stage) override;
  int end() override;
  void send(int to, std::span<const std::byte> bytes) override;
  std::size_t receive(int from, std::span<std::byte> bytes) override;
  bool drained(int to) override;
  [[nodiscard]] std::uint64_t unsent() const noexcept override;

  // No shared access: these are a bug of the caller.
  void publish(std::uint32_t stage) override;
  bool reached(int peer, std::uint32_t stage) override;
  const Exposure& exposed(int peer) override;
  std::byte* slot(int peer) override;
  [[nodiscard]] std::size_t slot_bytes() const noexcept override { return 0; }

  [[nodiscard]] bool failed() const noexcept override { return failure_.raised(); }
  [[nodiscard]] Status failure() const override { return failure_.cause(); }
  void fail(const Status& why) noexcept override { failure_.report(why); }
  bool spin(FunctionRef<bool()> done) override;
  bool wait(int peer, FunctionRef<bool()> done, Deadline deadline) override;
  void await_verdict() noexcept override;
  void settle_alone() noexcept override { failure_.settle_alone(); }
  [[nodiscard]] std::vector<int> missing() const override {
    return late_ ? late_(sequence_) : std::vector<int>();
  }
  [[nodiscard]] bool has_left(int rank) const override {
    return has_left_ && has_left_(member(rank));
  }
  void leave() noexcept override;
  void retire() noexcept override;
  [[nodiscard]] int member(int rank) const noexcept override {
    return members_.empty() ? rank : members_[static_cast<std::size_t>(rank)];
  }

 private:
  struct Peer;

  void unwatch() noexcept;
  /// Writes what the connections take now.
  void flush();
  /// True if the next byte of this peer's stream is data of the current operation.
  bool find_data(Peer& peer);
  /// Takes the next frame, reading more of the stream if there is less than one; false: none yet.
  bool next_frame(Peer& peer);
  bool refill(Peer& peer);
  void note_state(Peer& peer, sys::Transfer::State state);
  /// The connection is broken: reports it if that is nobody else's to notice.
  void judge_error(Peer& peer);
  /// Whether the operation the peer has announced last is ours; if not, fails the generation.
  bool agrees(Peer& peer);
  void report_disagreement(Peer& peer);
  void report_ahead(Peer& peer);
  /// What the peer sent for that operation is not what arrived.
  void report_altered(Peer& peer, std::uint64_t sequence, const std::string& what);
  /// Takes these bytes of the data frame in progress into account; false: it is not as it was sent.
  bool passes(Peer& peer, std::span<const std::byte> bytes);
  /// This rank and the peer, as the generation calls them, ascending.
  [[nodiscard]] std::vector<int> both(const Peer& peer) const;
  void condemn(Peer& peer, const Status& why);
  /// The connection to the peer, which is waited for, is over: reports it if that is all.
  void judge_path(Peer& peer, Time now);
  /// Looks for packets that are lost, now and then.
  void look_for_losses(Time now);
  void judge_losses(Peer& peer, Time now);
  void no_shared_access() noexcept;

  std::shared_ptr<void> borrowed_;  // first, so that it goes last
  int rank_;
  std::uint64_t generation_;
  Failure& failure_;
  const Clock& clock_;
  sys::Poller* poller_;
  History own_history_;
  History* history_;
  std::vector<int> members_;
  std::function<Status(int, const wire::Descriptor&, bool)> gone_;
  std::function<bool(int)> has_left_;
  std::function<std::vector<int>(std::uint64_t)> late_;
  std::shared_ptr<Begun> begun_;
  std::function<void(std::uint64_t)> leave_;
  Duration path_patience_;
  Time looked_{};  // for losses
  SpinPolicy spin_;
  std::uint64_t sequence_ = 0;
  std::uint64_t fingerprint_ = 0;
  wire::Descriptor descriptor_;
  std::vector<std::unique_ptr<Peer>> peers_;  // null for this rank and unused ones
  std::vector<Peer*> unsent_;                 // peers with bytes still to be written
};

}  // namespace lockstep::transport
