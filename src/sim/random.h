// Random: the seeded generator behind every choice of a simulation.
//
// Written out here (xoshiro256** filled by splitmix64) and without the standard library's
// distributions, whose results differ between libraries: a seed gives the same run everywhere.
//
//   Random random(7);
//   int rank = static_cast<int>(random.below(size));
//   if (random.chance(0.1)) network.cut("host0", "host1");
#pragma once

#include <array>
#include <bit>
#include <cassert>
#include <cstdint>

#include "base/clock.h"

namespace lockstep::sim {

/// One step of splitmix64: spreads the bits of `state`, which it advances.
constexpr std::uint64_t splitmix(std::uint64_t& state) noexcept {
  state += 0x9E3779B97F4A7C15U;
  std::uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) noexcept {
    for (auto& word : words_) word = splitmix(seed);
  }

  constexpr std::uint64_t next() noexcept {
    const std::uint64_t result = std::rotl(words_[1] * 5, 7) * 9;
    const std::uint64_t shifted = words_[1] << 17;
    words_[2] ^= words_[0];
    words_[3] ^= words_[1];
    words_[1] ^= words_[2];
    words_[0] ^= words_[3];
    words_[2] ^= shifted;
    words_[3] = std::rotl(words_[3], 45);
    return result;
  }

  /// Uniform in [0, bound); bound > 0. Draws again where the remainder would favour small values.
  constexpr std::uint64_t below(std::uint64_t bound) noexcept {
    assert(bound > 0);
    const std::uint64_t uneven = (0 - bound) % bound;
    for (;;) {
      const std::uint64_t drawn = next();
      if (drawn >= uneven) return drawn % bound;
    }
  }

  /// True with this probability.
  constexpr bool chance(double probability) noexcept {
    return static_cast<double>(next() >> 11) * 0x1p-53 < probability;
  }

  /// Uniform in [0, most]; draws nothing for zero.
  constexpr Duration up_to(Duration most) noexcept {
    if (most <= Duration::zero()) return Duration::zero();
    return Duration(
        static_cast<Duration::rep>(below(static_cast<std::uint64_t>(most.count()) + 1)));
  }

 private:
  std::array<std::uint64_t, 4> words_ = {};
};

}  // namespace lockstep::sim
