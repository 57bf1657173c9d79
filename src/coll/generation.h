// Generations of this process, counted together, so that an id is never met twice.
#pragma once

#include <atomic>
#include <cstdint>

namespace lockstep::coll {

inline std::atomic<std::uint64_t> last_generation = 0;

/// The process has been in this generation.
inline void note_generation(std::uint64_t generation) noexcept {
  std::uint64_t known = last_generation.load();
  while (known < generation && !last_generation.compare_exchange_weak(known, generation)) {
  }
}

}  // namespace lockstep::coll
