// Hints to the processor about cache lines that will be needed. They change nothing but the time.
#pragma once

#include <cstddef>

namespace lockstep {

inline constexpr std::size_t kCacheLine = 64;

/// The lines come to be read.
inline void fetch_lines(const std::byte* data, std::size_t bytes) noexcept {
  for (std::size_t at = 0; at < bytes; at += kCacheLine) __builtin_prefetch(data + at);
}

/// The lines come to be written: other cores give up their copies now instead of at the store.
inline void claim_lines(const std::byte* data, std::size_t bytes) noexcept {
  for (std::size_t at = 0; at < bytes; at += kCacheLine) {
#if defined(__x86_64__)
    // The builtin means another instruction here unless the compiler is told of this one, which
    // every 64-bit processor takes at least as a hint it does not know.
    asm volatile("prefetchw %0" : : "m"(data[at]));
#else
    __builtin_prefetch(data + at, 1);
#endif
  }
}

}  // namespace lockstep
