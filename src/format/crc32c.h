// CRC-32C (Castagnoli), the checksum of records; and the form in which TensorFlow stores it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::format {

std::uint32_t crc32c(std::span<const std::byte> bytes) noexcept;

/// A checksum over bytes that hold checksums would be weak; so stored ones are turned and shifted.
constexpr std::uint32_t masked(std::uint32_t crc) noexcept {
  constexpr std::uint32_t kDelta = 0xa282ead8;
  return ((crc >> 15) | (crc << 17)) + kDelta;
}

}  // namespace lockstep::format
