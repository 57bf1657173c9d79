// BoardLink: the part of a link that is the same for all ranks that share memory, threads or
// processes: publishing and awaiting stages, comparing requests, noticing who left, waiting.
//
// publish() is a store to the own board, await polls the peer's. Small operations go through slots
// on a desk, next to a flag of their own, so that flag and data arrive in one cache line. No clock
// is read and no lock is taken unless a wait is long or something fails.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/gate.h"
#include "transport/board.h"
#include "transport/failure.h"
#include "transport/link.h"

namespace lockstep::transport {

class BoardLink : public Link {
 public:
  [[nodiscard]] int rank() const noexcept final { return rank_; }
  [[nodiscard]] int size() const noexcept final { return static_cast<int>(members_.size()); }
  int begin(const wire::Descriptor& descriptor, const Exposure& mine, std::size_t slot) override;
  int offer(const wire::Descriptor& descriptor, std::size_t slot, std::span<const std::byte> data,
            std::uint32_t stage) final;
  void publish(std::uint32_t stage) final;
  bool reached(int peer, std::uint32_t stage) final;
  std::byte* slot(int peer) final;
  [[nodiscard]] std::size_t slot_bytes() const noexcept override { return Desk::kBytes; }

  [[nodiscard]] bool failed() const noexcept final { return failure_.raised(); }
  [[nodiscard]] Status failure() const final { return failure_.cause(); }
  void await_verdict() noexcept final;
  void settle_alone() noexcept final { failure_.settle_alone(); }
  bool spin(FunctionRef<bool()> done) final;
  bool wait(int peer, FunctionRef<bool()> done, Deadline deadline) final;
  bool enter() noexcept final;
  void exit() noexcept final;
  void quiesce() noexcept final;
  [[nodiscard]] std::vector<int> missing() const final;
  [[nodiscard]] int member(int rank) const noexcept final {
    return members_[static_cast<std::size_t>(rank)];
  }

 protected:
  /// `members` are ranks of the generation, in the group's order; `gates`, by that order, are where
  /// others sleep while they wait for a rank.
  BoardLink(std::vector<int> members, int rank, std::vector<Gate*> gates, Failure& failure,
            SpinPolicy spin);

  /// The rank's board, or null if it has made none yet.
  [[nodiscard]] Board* board(int rank) const {
    Board* known = boards_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire);
    return known != nullptr ? known : look_up(rank);
  }
  void set_board(int rank, Board* board) const {
    boards_[static_cast<std::size_t>(rank)].store(board, std::memory_order_release);
  }
  /// Asked until a board is set.
  [[nodiscard]] virtual Board* find_board(int /*rank*/) const { return nullptr; }
  /// Where the rank's slot lies in this operation, if it is too large for a desk.
  [[nodiscard]] virtual std::byte* staged(int /*rank*/) { return nullptr; }

  /// When quiesce() gives up waiting for that rank's Touch to end. A thread always ends it; a process
  /// may have died in it.
  [[nodiscard]] virtual Deadline quiet_by(int /*rank*/) const noexcept { return Deadline::never(); }

  Gate& gate(int rank) const noexcept { return *gates_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] Board& own() const noexcept {
    return *boards_[static_cast<std::size_t>(rank_)].load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t fingerprint() const noexcept { return fingerprint_; }
  /// The peer asked for something else. Reports at once if everybody's request is known; else the
  /// operation stays pending and wait() reports.
  void notice_disagreement();

 private:
  [[nodiscard]] Desk& desk(Board& board) const noexcept {
    return board.desks[slot_operations_ % plan::kSlots];
  }
  [[nodiscard]] Flag& flag_of(Board& board) const noexcept {
    return slot_ > 0 ? desk(board).flag : board.plain.flag;
  }
  /// The peer that is so far behind that nobody may start; kNobody: none.
  [[nodiscard]] int laggard(std::uint64_t sequence) const;
  void enter_operation(const wire::Descriptor& descriptor, std::size_t slot);
  void raise_flag(std::uint32_t stage);
  void enter_in_ledger(const wire::Descriptor& descriptor);
  Board* look_up(int rank) const;
  [[nodiscard]] bool may_touch() const noexcept { return !failed() && own().halted.load() == 0; }
  [[nodiscard]] bool has_arrived(int peer) const;
  /// First contact: compares descriptors once per peer and operation.
  bool agrees(int peer);
  /// True if the peer has asked for something else in this operation.
  bool disagrees(int peer);
  void report_mismatch();
  void report_left(int peer);

  std::vector<int> members_;
  int rank_;
  std::vector<Gate*> gates_;
  mutable std::vector<std::atomic<Board*>> boards_;  // null: not known yet
  Failure& failure_;
  SpinPolicy spin_;
  std::uint64_t sequence_ = 0;
  std::uint64_t fingerprint_ = 0;
  std::uint64_t slot_operations_ = 0;
  std::size_t slot_ = 0;  // bytes of this operation's slots
  bool disagreed_ = false;
  int other_minded_ = kNobody;         // whose flag showed it
  std::vector<std::uint64_t> agreed_;  // per peer: last sequence whose descriptors were compared
};

}  // namespace lockstep::transport
