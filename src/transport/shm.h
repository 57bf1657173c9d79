// The shared-memory transport: ranks are processes of one host.
//
// The host's ranks map one segment, in which each has an arena of its own. A rank's boards, rings,
// stages and exposed buffers lie in its arena; it alone writes there, but for results that a plan
// lets peers store in its slots and exposed buffers, and the read position of its rings. Nothing in
// the segment is a pointer, nothing there is locked, and numbers that came from a peer are checked
// before they are used as places.
//
// A peer finds a rank's boards in that rank's directory, by the id of the group. Buffers that lie
// in the arena (allocate()) are read and written by the peers in place; others go through slots and
// rings.
//
//   auto segment = std::make_shared<sys::Segment>(...);   // made by one, mapped by all
//   ShmHost host(segment, /*index=*/0, /*ranks=*/2);
//   ShmLink link(host, id, {0, 1}, {0, 1}, /*rank=*/0, failure);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/gate.h"
#include "sys/segment.h"
#include "transport/arena.h"
#include "transport/board_link.h"
#include "transport/failure.h"
#include "transport/ring.h"
#include "transport/stage.h"

namespace lockstep::transport {

/// One rank's view of the segment its host's ranks share.
class ShmHost {
 public:
  /// The room a segment for so many ranks must have.
  static std::size_t segment_bytes(int ranks);

  /// `index` is this rank's among the host's `ranks`. SystemError if memory is short.
  ShmHost(std::shared_ptr<sys::Segment> segment, int index, int ranks);
  ~ShmHost();
  ShmHost(const ShmHost&) = delete;
  ShmHost& operator=(const ShmHost&) = delete;

  [[nodiscard]] int index() const noexcept { return index_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  /// Where others sleep while they wait for that rank.
  Gate& gate(int index) noexcept;
  /// Wakes whoever sleeps in this segment, to look again.
  void wake_all() noexcept;
  /// This rank takes part in nothing more.
  void leave() noexcept;
  [[nodiscard]] bool has_left(int index) const noexcept;
  /// How long to poll: all ranks of the host and all their cores counted. Ask once all ranks have
  /// made their ShmHost.
  [[nodiscard]] SpinPolicy spin_policy() const;

  /// Memory that the host's ranks can reach.
  std::shared_ptr<std::byte> allocate(std::size_t bytes) { return arena_.allocate(bytes); }
  [[nodiscard]] bool reaches(const std::byte* data, std::size_t bytes) const noexcept {
    return arena_.contains(data, bytes);
  }

  // This rank's part of a group, in which it meets the others.
  /// Zeroed memory, aligned to a page. Stays until all processes of the host are done with it: a
  /// slower peer may still look at it. SystemError if memory is short.
  std::byte* reserve(std::size_t bytes) { return arena_.reserve(bytes); }
  /// Makes known where it lies, once a group. SystemError if there are too many groups.
  void announce(std::uint64_t group, const std::byte* at);
  /// Where another rank's part of it lies: null if there is none yet, or no `bytes` of its arena.
  [[nodiscard]] std::byte* find(int index, std::uint64_t group, std::size_t bytes) const noexcept;

 private:
  friend class ShmLink;
  struct RankHeader;

  [[nodiscard]] RankHeader& header(int index) const noexcept;
  [[nodiscard]] std::uint64_t offset_of(const std::byte* data) const noexcept {
    return static_cast<std::uint64_t>(data - segment_->data());
  }
  /// Null unless `bytes` from the offset on lie in that rank's arena.
  [[nodiscard]] std::byte* at(int index, std::uint64_t offset, std::uint64_t bytes) const noexcept;

  std::shared_ptr<sys::Segment> segment_;
  std::size_t arena_bytes_;
  int index_;
  int ranks_;
  Arena arena_;
};

class ShmLink final : public BoardLink {
 public:
  static constexpr std::size_t kSlotBytes = std::size_t{768} << 10;
  /// Pieces of one operation that can be exposed; with more it goes through slots.
  static constexpr std::size_t kMostPieces = 4096;

  /// `members` as in Fabric::link, `indices` the members' on this host. Everything is borrowed.
  ShmLink(ShmHost& host, std::uint64_t group, std::vector<int> members, std::vector<int> indices,
          int rank, Failure& failure);
  ~ShmLink() override;

  [[nodiscard]] plan::Access access(const Exposure& mine) const noexcept override;
  int begin(const wire::Descriptor& descriptor, const Exposure& mine, std::size_t slot) override;
  [[nodiscard]] std::size_t slot_bytes() const noexcept override { return kSlotBytes; }
  int end() override;
  void send(int to, std::span<const std::byte> bytes) override;
  std::size_t receive(int from, std::span<std::byte> bytes) override;
  bool drained(int to) override;
  [[nodiscard]] std::uint64_t unsent() const noexcept override;
  const Exposure& exposed(int peer) override;
  void fail(const Status& why) noexcept override { failure_.report(why); }
  [[nodiscard]] bool has_left(int rank) const override;
  void leave() noexcept override;

 private:
  struct Shown;    // the exposed buffers of a rank, as others can read them
  struct Message;  // what goes before the bytes of a message
  struct Peer;

  [[nodiscard]] Board* find_board(int rank) const override;
  [[nodiscard]] std::byte* staged(int rank) override;
  [[nodiscard]] std::size_t block_bytes() const noexcept;
  [[nodiscard]] Shown& shown_by(int rank) const noexcept;
  /// The ring from one member to another, which lies in the sender's block.
  [[nodiscard]] Ring ring(int from, int to) const noexcept;
  void have_stage();
  void show(const Exposure& mine) noexcept;
  /// So many elements of a peer's arena; DataError if they are not all in it.
  [[nodiscard]] std::byte* piece_of(int peer, std::uint64_t offset, std::uint64_t elements) const;
  [[noreturn]] void refuse_shown(int peer) const;
  /// Puts into the rings what goes now.
  void flush();

  ShmHost& host_;
  std::uint64_t group_;
  std::vector<int> indices_;
  Failure& failure_;
  const Exposure* mine_ = nullptr;
  std::uint64_t operation_ = 0;
  std::size_t width_ = 0;  // of an element, in this operation
  Stage stage_{kSlotBytes};
  std::size_t slot_at_ = 0;         // on everybody's stage, in this operation
  std::vector<std::byte*> stages_;  // by rank; null: not known yet
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<int> unsent_;  // peers with bytes still to be put into their rings
};

}  // namespace lockstep::transport
