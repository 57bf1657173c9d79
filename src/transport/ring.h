// Ring: bytes on their way from one process to another through shared memory. One writer, one
// reader, no lock.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace lockstep::transport {

/// What a ring between two of so many ranks holds: large groups have many, and get smaller ones.
constexpr std::size_t ring_bytes(int members) noexcept {
  constexpr std::size_t kLeast = std::size_t{16} << 10;
  constexpr std::size_t kMost = std::size_t{256} << 10;
  constexpr std::size_t kTogether = std::size_t{2} << 20;
  return std::clamp(kTogether / std::bit_ceil(static_cast<unsigned>(members)), kLeast, kMost);
}

/// The part of a ring's memory that is there from its start.
constexpr std::size_t kFirstRingBytes = std::size_t{16} << 10;

/// How much of a ring's memory must be there before `used` bytes of it are: it grows a few times at
/// most, and `usable` stays if that is enough.
constexpr std::size_t usable_for(std::size_t used, std::size_t usable,
                                 std::size_t capacity) noexcept {
  return used <= usable ? usable : std::min(capacity, std::max(used, 2 * usable));
}

class Ring {
 public:
  /// Memory for a ring that holds `capacity` bytes, a power of two.
  static constexpr std::size_t bytes(std::size_t capacity) noexcept {
    return sizeof(Shared) + capacity;
  }
  /// Memory for the first `used` bytes that go through a ring.
  static constexpr std::size_t first_bytes(std::size_t used) noexcept {
    return sizeof(Shared) + used;
  }
  /// A view of zeroed memory of that size, aligned to a cache line.
  Ring(std::byte* memory, std::size_t capacity) noexcept
      : shared_(reinterpret_cast<Shared*>(memory)),
        data_(memory + sizeof(Shared)),
        capacity_(capacity) {}

  /// The writer's: takes as many as there is room for now.
  std::size_t write(std::span<const std::byte> from) noexcept {
    const std::uint64_t at = shared_->written.load(std::memory_order_relaxed);
    const std::size_t now = std::min(from.size(), room());
    if (now == 0) return 0;
    copy(now, at, [&](std::size_t offset, std::size_t done, std::size_t count) {
      std::memcpy(data_ + offset, from.data() + done, count);
    });
    shared_->written.store(at + now, std::memory_order_release);
    return now;
  }

  /// The writer's: how far into the ring's memory it has ever written, and would with `more`.
  [[nodiscard]] std::size_t used(std::size_t more) const noexcept {
    const std::uint64_t at = shared_->written.load(std::memory_order_relaxed);
    return at >= capacity_ - std::min(more, capacity_) ? capacity_ : at + more;
  }

  /// The writer's: bytes that write() would take.
  [[nodiscard]] std::size_t room() const noexcept {
    // A reader that misbehaves can spoil the data, not our memory.
    return capacity_ - std::min<std::uint64_t>(shared_->written.load(std::memory_order_relaxed) -
                                                   shared_->read.load(std::memory_order_acquire),
                                               capacity_);
  }

  /// The reader's: gives as many as there are now.
  std::size_t read(std::span<std::byte> into) noexcept {
    const std::uint64_t at = shared_->read.load(std::memory_order_relaxed);
    const std::size_t now = std::min(into.size(), available());
    if (now == 0) return 0;
    copy(now, at, [&](std::size_t offset, std::size_t done, std::size_t count) {
      std::memcpy(into.data() + done, data_ + offset, count);
    });
    shared_->read.store(at + now, std::memory_order_release);
    return now;
  }
  /// The reader's: bytes that read() would give.
  [[nodiscard]] std::size_t available() const noexcept {
    return std::min<std::uint64_t>(shared_->written.load(std::memory_order_acquire) -
                                       shared_->read.load(std::memory_order_relaxed),
                                   capacity_);
  }

 private:
  struct Shared {
    alignas(64) std::atomic<std::uint64_t> written;
    alignas(64) std::atomic<std::uint64_t> read;
  };

  /// Calls `part` for the one or two stretches of memory that hold `count` bytes from `at` on.
  template <class Part>
  void copy(std::size_t count, std::uint64_t at, Part&& part) const {
    const std::size_t offset = at % capacity_;
    const std::size_t first = std::min(count, capacity_ - offset);
    if (first > 0) part(offset, std::size_t{0}, first);
    if (count > first) part(std::size_t{0}, first, count - first);
  }

  Shared* shared_;
  std::byte* data_;
  std::size_t capacity_;
};

}  // namespace lockstep::transport
