// Stage: where slots lie that are too large for a board's desk, one after another.
//
// The next slot begins where the last one ended, and at the start again where it would not fit. So
// a slot is written to lines that have not been touched for long: lines that a peer has just read
// are slow to write (on an AMD processor an all-reduce of 64 KiB takes 9 us if its slot is always
// the same, 4 us if it moves on).
//
// Ranks agree on the length of every slot, hence on where it lies. Two slots in a row never
// overlap, which is what plans count on (plan::kSlots): a slot that begins at the start follows one
// that ended in the last third, and so began behind the first.
#pragma once

#include <cassert>
#include <cstddef>

#include "base/cache_line.h"

namespace lockstep::transport {

class Stage {
 public:
  /// For slots of up to `longest` bytes.
  explicit constexpr Stage(std::size_t longest) noexcept : bytes_(3 * longest) {
    assert(longest % kCacheLine == 0);
  }

  [[nodiscard]] constexpr std::size_t bytes() const noexcept { return bytes_; }

  /// Where the next slot begins.
  constexpr std::size_t next(std::size_t length) noexcept {
    assert(length <= bytes_ / 3);
    if (end_ + length > bytes_) end_ = 0;
    const std::size_t begin = end_;
    end_ = begin + (length + kCacheLine - 1) / kCacheLine * kCacheLine;
    return begin;
  }

 private:
  std::size_t bytes_;
  std::size_t end_ = 0;
};

}  // namespace lockstep::transport
