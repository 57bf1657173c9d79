#include "base/crc32c.h"

#include <isa-l.h>

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep {
namespace {

/// The register of the checksum, from one piece to the next.
using Crc = std::uint32_t;

#if defined(__x86_64__)

/// Up to here the processor's own instruction is done before the library has begun.
constexpr std::size_t kShort = 256;

bool has_short() noexcept {
  static const bool has = __builtin_cpu_supports("sse4.2") != 0;
  return has;
}

__attribute__((target("sse4.2"))) Crc add_short(Crc crc,
                                                std::span<const std::byte> bytes) noexcept {
  std::uint64_t wide = crc;
  while (bytes.size() >= sizeof(wide)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof(word));
    wide = _mm_crc32_u64(wide, word);
    bytes = bytes.subspan(sizeof(word));
  }
  crc = static_cast<Crc>(wide);
  for (const std::byte byte : bytes) crc = _mm_crc32_u8(crc, std::to_integer<unsigned char>(byte));
  return crc;
}

__attribute__((target("avx"))) void zero_upper() noexcept { _mm256_zeroupper(); }

/// The library leaves the upper halves of vector registers in use, and the next instruction of the
/// older kind waits for them: that costs more than the checksum of a small record.
void clean_registers() noexcept {
  static const bool has_avx = __builtin_cpu_supports("avx") != 0;
  if (has_avx) zero_upper();
}

#else

constexpr std::size_t kShort = 0;
bool has_short() noexcept { return false; }
Crc add_short(Crc crc, std::span<const std::byte> /*bytes*/) noexcept { return crc; }
void clean_registers() noexcept {}

#endif

Crc add_long(Crc crc, std::span<const std::byte> bytes) noexcept {
  constexpr std::size_t kMost = std::size_t{1} << 30;  // the library counts in int
  while (!bytes.empty()) {
    const auto now = bytes.first(std::min(bytes.size(), kMost));
    // It only reads, whatever its signature says.
    auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(now.data()));
    crc = ::crc32_iscsi(data, static_cast<int>(now.size()), crc);
    bytes = bytes.subspan(now.size());
  }
  clean_registers();
  return crc;
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  const Crc begin = ~before;
  return ~(bytes.size() <= kShort && has_short() ? add_short(begin, bytes)
                                                 : add_long(begin, bytes));
}

}  // namespace lockstep
