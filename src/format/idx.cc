#include "format/idx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "format/elements.h"
#include "lockstep/error.h"

namespace lockstep::format {
namespace {

struct Code8 {
  std::uint8_t code;
  DType type;
};
constexpr Code8 kTypes[] = {{0x08, DType::uint8}, {0x09, DType::int8},    {0x0B, DType::int16},
                            {0x0C, DType::int32}, {0x0D, DType::float32}, {0x0E, DType::float64}};

[[noreturn]] void bad(const std::string& file, const std::string& what) {
  throw DataError(fmt::format("{}: {}", file, what));
}

std::uint64_t big_endian_32(const std::byte* at) {
  std::uint64_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | std::to_integer<std::uint64_t>(at[i]);
  return value;
}

}  // namespace

std::uint64_t IdxHeader::item_bytes() const noexcept {
  // The header has been checked, so the product fits.
  return bytes_of_shape(std::span(shape).subspan(1), size_of(type)).value_or(0);
}

IdxHeader parse_idx_header(std::span<const std::byte> prefix, const std::string& file) {
  if (prefix.size() < kIdxPrefixBytes) {
    bad(file, fmt::format("{} bytes are too few for an IDX file, whose header has at least {}",
                          prefix.size(), kIdxPrefixBytes + 4));
  }
  if (prefix[0] != std::byte{0} || prefix[1] != std::byte{0}) {
    bad(file, fmt::format("no IDX file: it begins with {:02x} {:02x}, not with 00 00{}",
                          std::to_integer<int>(prefix[0]), std::to_integer<int>(prefix[1]),
                          prefix[0] == std::byte{0x1f} && prefix[1] == std::byte{0x8b}
                              ? "; it is compressed with gzip"
                              : ""));
  }
  IdxHeader header;
  const auto code = std::to_integer<std::uint8_t>(prefix[2]);
  const auto* known =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](Code8 t) { return t.code == code; });
  if (known == std::end(kTypes)) {
    bad(file, fmt::format("element type 0x{:02x} (byte 2) is none of IDX's: 08 uint8, 09 int8, 0b "
                          "int16, 0c int32, 0d float32, 0e float64",
                          code));
  }
  header.type = known->type;
  const auto dims = std::to_integer<std::size_t>(prefix[3]);
  if (dims == 0) bad(file, "the IDX header names no dimension (byte 3)");
  if (prefix.size() < kIdxPrefixBytes + 4 * dims) {
    bad(file, fmt::format("cut off in the IDX header: {} dimensions need {} bytes, there are {}",
                          dims, kIdxPrefixBytes + 4 * dims, prefix.size()));
  }
  for (std::size_t i = 0; i < dims; ++i) {
    header.shape.push_back(
        static_cast<std::int64_t>(big_endian_32(prefix.data() + kIdxPrefixBytes + 4 * i)));
  }
  if (!bytes_of_shape(header.shape, size_of(header.type))) {
    bad(file, fmt::format("no file holds the {} {} of the IDX header", to_string(header.type),
                          header.shape));
  }
  return header;
}

std::vector<std::byte> encode_idx_header(const IdxHeader& header) {
  const auto* known = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [&](Code8 t) { return t.type == header.type; });
  if (known == std::end(kTypes)) {
    throw InvalidUsage(fmt::format("IDX has no element type for {}", to_string(header.type)));
  }
  if (header.shape.empty() || header.shape.size() > 255) {
    throw InvalidUsage(
        fmt::format("an IDX array has 1 to 255 dimensions, not {}", header.shape.size()));
  }
  std::vector<std::byte> bytes{std::byte{0}, std::byte{0}, std::byte{known->code},
                               static_cast<std::byte>(header.shape.size())};
  for (const std::int64_t dim : header.shape) {
    if (dim < 0 || dim > 0xffffffff) {
      throw InvalidUsage(fmt::format("IDX cannot hold a dimension of {}", dim));
    }
    for (int shift = 24; shift >= 0; shift -= 8) {
      bytes.push_back(static_cast<std::byte>(dim >> shift & 0xff));
    }
  }
  return bytes;
}

IdxReader::IdxReader(ReadBytes read, std::string file, std::optional<std::uint64_t> file_bytes)
    : read_(std::move(read)), file_(std::move(file)) {
  std::array<std::byte, kIdxMaxHeaderBytes> bytes{};
  std::size_t have = read_fully(read_, std::span(bytes).first(kIdxPrefixBytes));
  if (have == kIdxPrefixBytes) {
    const auto dims = std::to_integer<std::size_t>(bytes[3]);
    have += read_fully(read_, std::span(bytes).subspan(kIdxPrefixBytes, 4 * dims));
  }
  header_ = parse_idx_header(std::span(bytes).first(have), file_);
  if (file_bytes && *file_bytes != header_.header_bytes() + header_.payload_bytes()) {
    bad(file_, fmt::format("the IDX header says {} {}, {} bytes in all; the file has {}",
                           to_string(header_.type), header_.shape,
                           header_.header_bytes() + header_.payload_bytes(), *file_bytes));
  }
  if (header_.payload_bytes() == 0) finish(0, 0, 0);
}

std::uint64_t IdxReader::read(std::span<std::byte> into) {
  const std::uint64_t item = header_.item_bytes();
  if (items_left() == 0) return 0;
  const std::uint64_t items = item == 0 ? items_left() : std::min(items_left(), into.size() / item);
  if (items == 0) {
    throw InvalidUsage(fmt::format("{}: {} bytes of memory are too few for one item of {} bytes",
                                   file_, into.size(), item));
  }
  const auto bytes = into.first(items * item);
  finish(items, read_fully(read_, bytes), bytes.size());
  swap_byte_order(header_.type, bytes);
  return items;
}

std::vector<std::byte> IdxReader::read_rest() {
  const std::uint64_t items = items_left();
  std::vector<std::byte> bytes = read_growing(read_, items * header_.item_bytes());
  finish(items, bytes.size(), items * header_.item_bytes());
  swap_byte_order(header_.type, bytes);
  return bytes;
}

void IdxReader::finish(std::uint64_t items, std::uint64_t came, std::uint64_t expected) {
  const std::uint64_t before = header_.header_bytes() + done_ * header_.item_bytes();
  if (came < expected) {
    bad(file_, fmt::format("cut off at byte {}: the IDX header says {} {}, {} bytes in all",
                           before + came, to_string(header_.type), header_.shape,
                           header_.header_bytes() + header_.payload_bytes()));
  }
  done_ += items;
  std::byte more{};
  if ((items_left() == 0 || header_.item_bytes() == 0) && read_(std::span(&more, 1)) != 0) {
    bad(file_, fmt::format("bytes follow the {} {} of the IDX header, which end at byte {}",
                           to_string(header_.type), header_.shape,
                           header_.header_bytes() + header_.payload_bytes()));
  }
}

}  // namespace lockstep::format
