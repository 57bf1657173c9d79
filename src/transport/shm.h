// The shared-memory transport: ranks are processes of one host.
//
// The host's ranks map one segment, in which each has an arena of its own. A rank's boards, rings,
// stages and exposed buffers lie in its arena; it alone writes there, but for results that a plan
// lets peers store in its slots and exposed buffers, and the read position of its rings. Nothing in
// the segment is a pointer, nothing there is locked, and numbers that came from a peer are checked
// before they are used as places.
//
// A peer finds a rank's boards in that rank's directory, by the id of the group (group_memory.h).
// Buffers that lie in the arena (allocate()) are read and written by the peers in place; others go
// through slots and rings. Stages, rings and lists of exposed buffers are made when they are first
// needed.
//
//   auto segment = std::make_shared<sys::Segment>(...);   // made by one, mapped by all
//   ShmHost host(segment, /*index=*/0, /*ranks=*/2);
//   ShmLink link(host, id, {0, 1}, {0, 1}, /*rank=*/0, failure);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/gate.h"
#include "transport/board_link.h"
#include "transport/failure.h"
#include "transport/group_memory.h"
#include "transport/ring.h"
#include "transport/shm_host.h"
#include "transport/stage.h"

namespace lockstep::transport {

class ShmLink final : public BoardLink {
 public:
  /// Pieces of one operation that can be exposed; with more it goes through slots.
  static constexpr std::size_t kMostPieces = 4096;

  /// `members` as in Fabric::link, `indices` the members' on this host. Everything is borrowed.
  ShmLink(ShmHost& host, std::uint64_t group, std::vector<int> members, std::vector<int> indices,
          int rank, Failure& failure);
  ~ShmLink() override;

  [[nodiscard]] plan::Access access(const Exposure& mine) const noexcept override;
  int begin(const wire::Descriptor& descriptor, const Exposure& mine, std::size_t slot) override;
  [[nodiscard]] std::size_t slot_bytes() const noexcept override { return staging_.slot_bytes(); }
  [[nodiscard]] plan::Staging staging() const noexcept override { return staging_; }
  int end() override;
  void send(int to, std::span<const std::byte> bytes) override;
  std::size_t receive(int from, std::span<std::byte> bytes) override;
  bool drained(int to) override;
  [[nodiscard]] std::uint64_t unsent() const noexcept override;
  const Exposure& exposed(int peer) override;
  void fail(const Status& why) noexcept override { failure_.report(why); }
  [[nodiscard]] bool has_left(int rank) const override;
  void leave() noexcept override;
  void retire() noexcept override;

 private:
  struct Shown;    // the exposed buffers of a rank, as others can read them
  struct Message;  // what goes before the bytes of a message
  struct Peer;

  [[nodiscard]] Board* find_board(int rank) const override;
  [[nodiscard]] Deadline quiet_by(int rank) const noexcept override;
  [[nodiscard]] std::byte* staged(int rank) override;
  /// Of the memory that the members find: the board, and where the rings to each of them lie.
  [[nodiscard]] std::size_t block_bytes() const noexcept;
  [[nodiscard]] std::atomic<std::uint64_t>& ring_place(int from, int to) const noexcept;
  /// Where the ring from a peer lies; null: it has made none yet.
  [[nodiscard]] std::byte* incoming(int from);
  /// The ring to a peer, with memory for so many bytes more, as far as they fit.
  [[nodiscard]] Ring outgoing(int to, std::size_t more);
  void have_stage();
  void have_shown(std::size_t pieces);
  void show(const Exposure& mine);
  [[nodiscard]] const Shown& shown_by(int peer, std::size_t pieces) const;
  /// So many elements of a peer's arena; DataError if they are not all in it.
  [[nodiscard]] std::byte* piece_of(int peer, std::uint64_t offset, std::uint64_t elements) const;
  [[noreturn]] void refuse_shown(int peer) const;
  /// Puts into the rings what goes now.
  void flush();

  ShmHost& host_;
  std::vector<int> indices_;
  std::optional<GroupMemory> memory_;  // empty once retired
  Failure& failure_;
  const Exposure* mine_ = nullptr;
  std::uint64_t operation_ = 0;
  std::size_t width_ = 0;  // of an element, in this operation
  const plan::Staging staging_;
  Stage stage_{staging_.slot_bytes()};
  std::size_t slot_at_ = 0;         // on everybody's stage, in this operation
  std::vector<std::byte*> stages_;  // by rank; null: not known yet
  Shown* shown_ = nullptr;          // own
  std::size_t shown_pieces_ = 0;    // that it has room for
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<int> unsent_;  // peers with bytes still to be put into their rings
};

}  // namespace lockstep::transport
