// The header of an .npy file: magic, version, and a Python dictionary as text with the type, the
// order and the shape of the array.
//
//   out << encode_npy_header({.type = DType::float32, .shape = {3, 4}}) << bytes of 12 floats;
//
// Errors are DataErrors with the file, the field and the byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/dtype.h"

namespace lockstep::format {

enum class ByteOrder : std::uint8_t { little, big };
enum class ArrayOrder : std::uint8_t { c, fortran };

struct NpyHeader {
  DType type = DType::float32;
  ByteOrder byte_order = ByteOrder::little;
  ArrayOrder array_order = ArrayOrder::c;
  std::vector<std::int64_t> shape;  // empty: one element
  /// Where the elements begin.
  std::size_t header_bytes = 0;

  [[nodiscard]] std::uint64_t elements() const noexcept { return payload_bytes() / size_of(type); }
  [[nodiscard]] std::uint64_t payload_bytes() const noexcept;
};

inline constexpr std::size_t kNpyPrefixBytes = 12;
/// A header whose text is longer is refused.
inline constexpr std::size_t kNpyMaxHeaderBytes = std::size_t{1} << 20;

/// Bytes of the header, from the first kNpyPrefixBytes of the file (all of them, if it has fewer).
std::size_t npy_header_bytes(std::span<const std::byte> prefix, const std::string& file);

/// The header at the front of `prefix`, which may go on behind it.
NpyHeader parse_npy_header(std::span<const std::byte> prefix, const std::string& file);

/// What numpy.save writes before the elements. `header_bytes` is not used.
std::string encode_npy_header(const NpyHeader& header);

}  // namespace lockstep::format
