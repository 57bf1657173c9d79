// Link: a rank's end of a group through which plans move their data. Each transport implements it.
//
// Nothing here blocks except wait(). An operation calls begin(), then sends, receives, publishes
// and awaits in the order of its plan, polling each until it is complete, then end(). A call that
// cannot go on returns its "not yet" value; the cause of a failure is in failure().
//
// The link compares descriptors: at the first contact with a peer in an operation, before any byte
// is delivered, the peer's descriptor must equal ours, else the generation fails with Mismatch.
//
// Thread rule: one thread at a time drives a link; fail() may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "plan/algorithm.h"
#include "plan/plan.h"
#include "transport/group_end.h"
#include "wire/descriptor.h"

namespace lockstep::transport {

/// A buffer of the caller's as a list of pieces (a gather list): one span, or the tensors of a
/// batch. All ranks present the same pieces (the descriptor's shape hash covers them).
struct Pieces {
  struct Piece {
    std::byte* data = nullptr;
    std::uint64_t begin = 0;  // first element
    std::uint64_t end = 0;
  };
  std::span<const Piece> pieces;
};

/// What this rank lets its peers touch during the operation (shared access only).
struct Exposure {
  std::span<const Pieces> inputs;  // one per local replica
  Pieces output;
};

inline constexpr std::size_t kMostOffered = 8192;  // bytes

class Link : public GroupEnd {
 public:
  /// What a plan for the operation may use: messages; slots, too; or also the peers' buffers, if
  /// everybody's are where the others can reach them as these are.
  [[nodiscard]] virtual plan::Access access(const Exposure& mine) const noexcept = 0;

  /// Starts the operation described; `mine` outlives its end. `slot` is how many bytes its plan
  /// needs of a slot (plan::Buffer::slot) at most, the same on all ranks; 0: it uses none. kNobody:
  /// started. Else the peer that is so far behind that starting must wait for it: try again.
  /// SystemError if there is no memory for the slot.
  virtual int begin(const wire::Descriptor& descriptor, const Exposure& mine, std::size_t slot) = 0;
  /// begin(), `data` into the own slot, publish(stage): the first steps of a small operation in one
  /// call. `slot` is at most kMostOffered.
  virtual int offer(const wire::Descriptor& descriptor, std::size_t slot,
                    std::span<const std::byte> data, std::uint32_t stage) = 0;
  /// kNobody: all that was sent has left the caller's memory and the operation is over for this
  /// link. Else the peer that has not taken its bytes yet: try again.
  virtual int end() = 0;

  /// Takes bytes to send; they stay unchanged until drained. What waits is bounded by the plan
  /// alone: a bound here could keep two ranks that both have more to send from ever receiving.
  virtual void send(int to, std::span<const std::byte> bytes) = 0;
  /// Bytes moved into `bytes` now; 0: none yet.
  virtual std::size_t receive(int from, std::span<std::byte> bytes) = 0;
  virtual bool drained(int to) = 0;
  /// Bytes given to send() that have not left the caller's memory yet: shrinks while they move.
  /// Asked in long waits only, so it may count them then.
  [[nodiscard]] virtual std::uint64_t unsent() const noexcept = 0;

  // Shared access; a link without it never gets a plan that needs it.
  virtual void publish(std::uint32_t stage) = 0;
  virtual bool reached(int peer, std::uint32_t stage) = 0;
  /// A peer's buffers. Valid once `reached` was true for that peer in this operation; own ones
  /// always.
  virtual const Exposure& exposed(int peer) = 0;
  /// Base of the slot a rank uses in this operation. A peer's: once `reached` was true for it.
  virtual std::byte* slot(int peer) = 0;
  /// What begin() can be asked for.
  [[nodiscard]] virtual std::size_t slot_bytes() const noexcept = 0;
  /// How plans go through slots; the same on all ranks.
  [[nodiscard]] virtual plan::Staging staging() const noexcept { return {}; }

  // Peers' memory. After a failure a caller takes its buffers back, so touching a peer's is
  // bracketed: see Touch.
  /// False once the generation has failed here, or a peer that has failed is in quiesce() or past
  /// it: do not touch, now or later.
  virtual bool enter() noexcept { return !failed(); }
  virtual void exit() noexcept {}
};

/// The time in which a rank touches its peers' memory. Ends soon, whatever happens: peers that have
/// failed wait for it.
class Touch {
 public:
  explicit Touch(Link& link) noexcept : link_(link.enter() ? &link : nullptr) {}
  ~Touch() {
    if (link_ != nullptr) link_->exit();
  }
  Touch(const Touch&) = delete;
  Touch& operator=(const Touch&) = delete;

  [[nodiscard]] bool allowed() const noexcept { return link_ != nullptr; }

 private:
  Link* link_;
};

}  // namespace lockstep::transport
