// Staging: how the values of buffers that peers cannot reach go through slots (staged_reduce.cc).
// Which is fastest depends on how the caches of a machine exchange lines, so that the ranks of a
// host measure it when they join (coll/staging_trial.h).
#pragma once

#include <cstdint>

namespace lockstep::plan {

/// What sessions move at a time in pipelined plans (Request::chunk, in bytes): little enough to
/// stay in the cache, enough for a peer that is late not to stop the stream.
inline constexpr std::uint64_t kChunkBytes = std::uint64_t{256} << 10;

/// How values are copied into the own slot.
enum class SlotStores : std::uint8_t { cached, around_cache };

struct Staging {
  std::uint64_t chunk_bytes = kChunkBytes;
  SlotStores stores = SlotStores::cached;

  /// Of a slot: a staged plan uses so many chunks in turn.
  static constexpr std::uint64_t kRegions = 3;
  [[nodiscard]] constexpr std::uint64_t slot_bytes() const noexcept {
    return kRegions * chunk_bytes;
  }
  friend bool operator==(const Staging&, const Staging&) = default;
};

/// A chunk that is staged has a multiple of so many bytes, and at most so many.
inline constexpr std::uint64_t kStagedUnit = std::uint64_t{4} << 10;
inline constexpr std::uint64_t kMostStagedBytes = std::uint64_t{1} << 20;

}  // namespace lockstep::plan
