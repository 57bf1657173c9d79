// CRC-32C (Castagnoli), the checksum of records and of frames. It finds every single flipped bit,
// and every burst of up to 32 bits.
//
//   crc32c(whole) == crc32c(second_part, crc32c(first_part))
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

/// `before`: of the bytes that come before these; 0 for none.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

}  // namespace lockstep
