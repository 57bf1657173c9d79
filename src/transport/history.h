// History: what this rank asked for in its last operations, and a digest of everything it ever
// asked for.
//
// Two ranks whose digests at the same sequence number differ have made different calls, there or
// before. The data path compares descriptors when ranks meet; pulses carry the digest, so ranks
// that never meet are compared as well.
//
// Thread rule: any thread; one adds.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>

#include "base/mutex.h"
#include "wire/descriptor.h"

namespace lockstep::transport {

class History {
 public:
  struct Entry {
    wire::Descriptor descriptor;  // sequence 0: nothing yet
    std::uint64_t digest = 0;
  };

  /// Sequence numbers grow from 1.
  void add(const wire::Descriptor& descriptor) noexcept {
    const MutexLock lock(mutex_);
    std::uint64_t digest = std::rotl(latest_.digest, 17) ^ wire::fingerprint(descriptor);
    digest *= 0x9E3779B97F4A7C15U;
    latest_ = {descriptor, digest ^ (digest >> 32)};
    entries_[descriptor.sequence % kKept] = latest_;
  }

  [[nodiscard]] Entry latest() const noexcept {
    const MutexLock lock(mutex_);
    return latest_;
  }
  /// Empty if not begun yet or too long ago.
  [[nodiscard]] std::optional<Entry> at(std::uint64_t sequence) const noexcept {
    const MutexLock lock(mutex_);
    const Entry& entry = entries_[sequence % kKept];
    if (entry.descriptor.sequence != sequence || sequence == 0) return std::nullopt;
    return entry;
  }

 private:
  static constexpr std::size_t kKept = 64;
  mutable Mutex mutex_;
  Entry latest_ GUARDED_BY(mutex_);
  std::array<Entry, kKept> entries_ GUARDED_BY(mutex_);
};

}  // namespace lockstep::transport
