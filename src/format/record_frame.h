// The frame of a record in a TFRecord file, see lockstep/tfrecord.h.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "base/crc32c.h"

namespace lockstep::format {

static_assert(std::endian::native == std::endian::little, "records are little endian");

inline constexpr std::size_t kRecordHeader = 12;  // length and its checksum
inline constexpr std::size_t kRecordFooter = 4;   // checksum of the data

using RecordHeader = std::array<std::byte, kRecordHeader>;
using RecordFooter = std::array<std::byte, kRecordFooter>;

/// A checksum over bytes that hold checksums would be weak; so stored ones are turned and shifted.
constexpr std::uint32_t masked(std::uint32_t crc) noexcept {
  constexpr std::uint32_t kDelta = 0xa282ead8;
  return ((crc >> 15) | (crc << 17)) + kDelta;
}

inline RecordHeader record_header(std::uint64_t length) noexcept {
  RecordHeader header;
  std::memcpy(header.data(), &length, sizeof(length));
  const std::uint32_t check = masked(crc32c(std::span(header).first(sizeof(length))));
  std::memcpy(header.data() + sizeof(length), &check, sizeof(check));
  return header;
}

inline RecordFooter record_footer(std::span<const std::byte> data) noexcept {
  return std::bit_cast<RecordFooter>(masked(crc32c(data)));
}

/// The length that a header says; nothing if its checksum is wrong.
inline std::optional<std::uint64_t> record_length(
    std::span<const std::byte, kRecordHeader> header) noexcept {
  std::uint64_t length = 0;
  std::uint32_t check = 0;
  std::memcpy(&length, header.data(), sizeof(length));
  std::memcpy(&check, header.data() + sizeof(length), sizeof(check));
  if (masked(crc32c(header.first<sizeof(length)>())) != check) return std::nullopt;
  return length;
}

/// Whether data and the checksum behind it agree.
inline bool data_is_good(std::span<const std::byte> data,
                         std::span<const std::byte, kRecordFooter> footer) noexcept {
  std::uint32_t check = 0;
  std::memcpy(&check, footer.data(), sizeof(check));
  return masked(crc32c(data)) == check;
}

}  // namespace lockstep::format
