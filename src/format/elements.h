// What the array formats share: the number of elements of a shape that came from a file, and
// elements that lie in the other byte order.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>

#include "lockstep/dtype.h"

namespace lockstep::format {

// Every platform we build for is little endian, so only big-endian files are swapped.
static_assert(std::endian::native == std::endian::little, "files are read as little endian");

/// Bytes of `shape` times `element_bytes`; nothing if a dimension is negative or the product of the
/// dimensions that are not zero leaves 63 bits (a zero must not hide an absurd neighbour).
inline std::optional<std::uint64_t> bytes_of_shape(std::span<const std::int64_t> shape,
                                                   std::size_t element_bytes) {
  std::uint64_t product = element_bytes;
  bool empty = false;
  for (const std::int64_t dim : shape) {
    if (dim < 0) return std::nullopt;
    if (dim == 0) {
      empty = true;
    } else if (product > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) /
                             static_cast<std::uint64_t>(dim)) {
      return std::nullopt;
    } else {
      product *= static_cast<std::uint64_t>(dim);
    }
  }
  return empty ? 0 : product;
}

namespace detail {
template <class Word>
void swap_words(std::span<std::byte> bytes) noexcept {
  for (std::size_t at = 0; at + sizeof(Word) <= bytes.size(); at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, bytes.data() + at, sizeof(Word));
    if constexpr (sizeof(Word) == 2) word = __builtin_bswap16(word);
    if constexpr (sizeof(Word) == 4) word = __builtin_bswap32(word);
    if constexpr (sizeof(Word) == 8) word = __builtin_bswap64(word);
    std::memcpy(bytes.data() + at, &word, sizeof(Word));
  }
}
}  // namespace detail

/// Turns every element of `bytes` round in place: from big endian to the host's order or back.
inline void swap_byte_order(DType type, std::span<std::byte> bytes) noexcept {
  // A complex number is two numbers, each turned on its own.
  switch (is_complex(type) ? size_of(type) / 2 : size_of(type)) {
    case 2:
      return detail::swap_words<std::uint16_t>(bytes);
    case 4:
      return detail::swap_words<std::uint32_t>(bytes);
    case 8:
      return detail::swap_words<std::uint64_t>(bytes);
    default:
      return;
  }
}

}  // namespace lockstep::format
