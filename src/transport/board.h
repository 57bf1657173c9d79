// Board: what one rank of a group shows the others, in memory they all can read: how far it is,
// what it asked for, and small data. Written by its own rank only.
//
// Lies in the heap for ranks that are threads and in a segment for ranks that are processes, so
// it holds no pointers that the others would follow, but for `exposure`, which only threads use.
//
// A board is followed in memory by plan::kSlots desks: a flag and `slot_bytes` of data.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
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

struct Desk {
  Flag flag;

  [[nodiscard]] std::byte* data(Staging staging) noexcept {
    auto* first = reinterpret_cast<std::byte*>(this + 1);
    return staging == Staging::with_flag ? first : first + kBytesWithFlag;
  }
};
static_assert(sizeof(Desk) + kBytesWithFlag == 64);

struct alignas(64) Board {
  struct alignas(64) Plain {
    Flag flag;
    const Exposure* exposure = nullptr;  // ordered by flag.stamp
  };
  struct alignas(64) Ledger {
    std::atomic<std::uint64_t> begun = 0;  // last sequence whose entry is valid
    std::atomic<bool> left = false;
    std::array<AtomicBox<wire::Descriptor>, kLedger> entries;  // ordered by begun
  };

  Plain plain;
  Ledger ledger;
  alignas(64) std::atomic<bool> touching = false;  // this rank is at a peer's memory

  /// Bytes of a board and its desks.
  static constexpr std::size_t bytes(std::size_t slot_bytes) noexcept {
    return sizeof(Board) + plan::kSlots * desk_bytes(slot_bytes);
  }
  /// Makes one in zeroed memory of bytes(slot_bytes), aligned to a cache line.
  static Board* make(std::byte* memory, std::size_t slot_bytes) {
    auto* board = new (memory) Board;
    for (std::uint64_t i = 0; i < plan::kSlots; ++i) new (&board->desk(i, slot_bytes)) Desk;
    return board;
  }

  Desk& desk(std::uint64_t turn, std::size_t slot_bytes) noexcept {
    auto* first = reinterpret_cast<std::byte*>(this + 1);
    return *reinterpret_cast<Desk*>(first + turn % plan::kSlots * desk_bytes(slot_bytes));
  }
  /// What the rank asked for; empty if it has not yet, or too long ago.
  [[nodiscard]] std::optional<wire::Descriptor> request(std::uint64_t sequence) const {
    const std::uint64_t begun = ledger.begun.load(std::memory_order_acquire);
    if (begun < sequence) return std::nullopt;
    const wire::Descriptor entry = ledger.entries[sequence % kLedger].read();
    if (entry.sequence != sequence) return std::nullopt;  // overwritten, or about to be
    return entry;
  }

 private:
  static constexpr std::size_t desk_bytes(std::size_t slot_bytes) noexcept {
    return (sizeof(Desk) + kBytesWithFlag + slot_bytes + 63) / 64 * 64;
  }
};

}  // namespace lockstep::transport
