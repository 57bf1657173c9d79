// Generations of this process, counted together, so that an id is never met twice.
#pragma once

#include <atomic>
#include <cstdint>

namespace lockstep::coll {

inline std::atomic<std::uint64_t> last_generation = 0;

/// The process whose last generation that was has been in this one.
inline void note_generation(std::uint64_t generation,
                            std::atomic<std::uint64_t>& last = last_generation) noexcept {
  std::uint64_t known = last.load();
  while (known < generation && !last.compare_exchange_weak(known, generation)) {
  }
}

}  // namespace lockstep::coll
