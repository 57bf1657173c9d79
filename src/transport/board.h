// Board: what one rank of a group shows the others, in memory they all can read: how far it is,
// what it asked for, and small data. Written by its own rank only, but for `halted` and for sums that
// a plan lets peers store in its slots.
//
// Lies in the heap for ranks that are threads and in a segment for ranks that are processes, so
// it holds no pointers that the others would follow, but for `exposure`, which only threads use.
//
// Small slots lie on its desks, next to a flag; larger ones on the rank's stage (stage.h).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/atomic_box.h"
#include "plan/plan.h"
#include "transport/link.h"
#include "wire/descriptor.h"

namespace lockstep::transport {

/// A rank remembers what it asked for in its last kLedger operations; nobody may run further ahead
/// of the slowest rank than kMaxLead, so every first contact can be checked.
inline constexpr std::uint64_t kLedger = 128;
inline constexpr std::uint64_t kLookEvery = 16;  // operations, at the others' progress
inline constexpr std::uint64_t kMaxLead = 48;
static_assert(2 * (kMaxLead + kLookEvery) <= kLedger, "also for reports that look back");

struct Flag {
  std::atomic<std::uint64_t> stamp = 0;
  std::atomic<std::uint64_t> fingerprint = 0;
};

/// A slot of few bytes lies in the flag's cache line, so that both arrive together; a larger one
/// begins with the next line.
struct alignas(64) Desk {
  static constexpr std::size_t kWithFlag = 48;  // bytes
  static constexpr std::size_t kBytes = kMostOffered;

  Flag flag;
  std::array<std::byte, kWithFlag> with_flag;
  std::array<std::byte, kBytes> behind;
};
static_assert(offsetof(Desk, behind) == 64);

struct alignas(64) Board {
  struct alignas(64) Plain {
    Flag flag;
    const Exposure* exposure = nullptr;  // ordered by flag.stamp
  };
  struct alignas(64) Ledger {
    std::atomic<std::uint64_t> begun = 0;  // last sequence whose entry is valid
    std::atomic<bool> left = false;
    // Where they lie in the segment, in processes; 0: nowhere yet.
    std::atomic<std::uint64_t> stage = 0;
    std::atomic<std::uint64_t> shown = 0;  // the list of exposed buffers; ordered by the flag
    std::array<AtomicBox<wire::Descriptor>, kLedger> entries;  // ordered by begun
  };

  Plain plain;
  Ledger ledger;
  alignas(64) std::atomic<bool> touching = false;  // this rank is at a peer's memory
  std::atomic<std::uint32_t> halted = 0;  // 1: it may not be, since a peer has failed; set by peers
  std::array<Desk, plan::kSlots> desks;   // used in turn

  /// What the rank asked for; empty if it has not yet, or too long ago.
  [[nodiscard]] std::optional<wire::Descriptor> request(std::uint64_t sequence) const {
    const std::uint64_t begun = ledger.begun.load(std::memory_order_acquire);
    if (begun < sequence) return std::nullopt;
    const wire::Descriptor entry = ledger.entries[sequence % kLedger].read();
    if (entry.sequence != sequence) return std::nullopt;  // overwritten, or about to be
    return entry;
  }
};

}  // namespace lockstep::transport
