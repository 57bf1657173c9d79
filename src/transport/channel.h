// Channel: a ring whose two ends may sleep. Each says in the shared memory when it is about to; the
// other one, when it has changed something, learns that there is somebody to wake.
//
//   writer                                          reader
//   channel.write(bytes);                           if (channel.read(into) == 0 &&
//   if (channel.rouse_reader()) wake();                 channel.reader_may_sleep()) sleep();
//
// In fresh memory both ends count as asleep: the first bytes wake a reader that has not yet found
// the channel and could not say that it sleeps.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/ring.h"

namespace lockstep::transport {

class Channel {
 public:
  /// Memory for a channel that holds `capacity` bytes, a power of two of 64 or more.
  static constexpr std::size_t bytes(std::size_t capacity) noexcept {
    return sizeof(Shared) + Ring::bytes(capacity);
  }
  /// Memory for the first `used` bytes that go through a channel.
  static constexpr std::size_t first_bytes(std::size_t used) noexcept {
    return sizeof(Shared) + Ring::first_bytes(used);
  }
  /// A view of zeroed memory of that size, aligned to a cache line.
  Channel(std::byte* memory, std::size_t capacity) noexcept
      : shared_(reinterpret_cast<Shared*>(memory)), ring_(memory + sizeof(Shared), capacity) {}

  // The writer's.
  /// How far into its memory the writer has ever written, and would with `more`.
  [[nodiscard]] std::size_t used(std::size_t more) const noexcept { return ring_.used(more); }
  std::size_t write(std::span<const std::byte> from) noexcept { return ring_.write(from); }
  /// After a write: true if the reader sleeps, or is about to. Told once.
  bool rouse_reader() noexcept { return rouse(shared_->reader_awake); }
  /// Says that the writer is about to sleep; false if there is room: do not.
  bool writer_may_sleep() noexcept {
    shared_->writer_awake.exchange(0, std::memory_order_acq_rel);
    return ring_.room() == 0;
  }
  /// Nothing more will be written.
  void end() noexcept { shared_->ended.store(1, std::memory_order_release); }

  // The reader's.
  std::size_t read(std::span<std::byte> into) noexcept { return ring_.read(into); }
  bool rouse_writer() noexcept { return rouse(shared_->writer_awake); }
  /// Says that the reader is about to sleep; false if there are bytes, or the end: do not.
  bool reader_may_sleep() noexcept {
    shared_->reader_awake.exchange(0, std::memory_order_acq_rel);
    return ring_.available() == 0 && !ended();
  }
  /// What was written before the end is there when this is true.
  [[nodiscard]] bool ended() const noexcept {
    return shared_->ended.load(std::memory_order_acquire) != 0;
  }

 private:
  struct Shared {
    alignas(64) std::atomic<std::uint32_t> reader_awake;
    alignas(64) std::atomic<std::uint32_t> writer_awake;
    alignas(64) std::atomic<std::uint32_t> ended;
  };

  // Both sides change the flag by an exchange. Whichever comes second sees what the first one did
  // before its own: the sleeper the bytes, or the other one the sleeper.
  static bool rouse(std::atomic<std::uint32_t>& awake) noexcept {
    return awake.exchange(1, std::memory_order_acq_rel) == 0;
  }

  Shared* shared_;
  Ring ring_;
};

}  // namespace lockstep::transport
