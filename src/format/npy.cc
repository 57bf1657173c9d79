#include "format/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "format/elements.h"
#include "lockstep/error.h"

namespace lockstep::format {
namespace {

[[noreturn]] void bad(const std::string& file, const std::string& what) {
  throw DataError(fmt::format("{}: {}", file, what));
}

}  // namespace

NpyReader::NpyReader(ReadBytes read, std::string file, std::optional<std::uint64_t> file_bytes)
    : read_(std::move(read)), file_(std::move(file)) {
  std::vector<std::byte> bytes = read_growing(read_, kNpyPrefixBytes);
  const std::size_t size = npy_header_bytes(bytes, file_);
  if (size < kNpyPrefixBytes)
    bad(file_, fmt::format("a .npy header of {} bytes is too short", size));
  const auto rest = read_growing(read_, size - bytes.size());
  bytes.insert(bytes.end(), rest.begin(), rest.end());
  header_ = parse_npy_header(bytes, file_);
  const std::uint64_t all = header_.header_bytes + header_.payload_bytes();
  if (file_bytes && *file_bytes != all) {
    bad(file_, fmt::format("the .npy header says {} {}, {} bytes in all; the file has {}",
                           to_string(header_.type), header_.shape, all, *file_bytes));
  }
  if (header_.payload_bytes() == 0) finish({}, 0);
}

std::uint64_t NpyReader::read(std::span<std::byte> into) {
  const std::size_t element = size_of(header_.type);
  if (bytes_left() == 0) return 0;
  const std::uint64_t bytes =
      std::min<std::uint64_t>(bytes_left(), into.size() / element * element);
  if (bytes == 0) {
    throw InvalidUsage(fmt::format("{}: {} bytes of memory are too few for an element of {} bytes",
                                   file_, into.size(), element));
  }
  finish(into.first(read_fully(read_, into.first(bytes))), bytes);
  return bytes;
}

std::vector<std::byte> NpyReader::read_rest() {
  const std::uint64_t expected = bytes_left();
  std::vector<std::byte> bytes = read_growing(read_, expected);
  finish(bytes, expected);
  return bytes;
}

void NpyReader::finish(std::span<std::byte> came, std::uint64_t expected) {
  const std::uint64_t all = header_.header_bytes + header_.payload_bytes();
  if (came.size() < expected) {
    bad(file_, fmt::format("cut off at byte {}: the .npy header says {} {}, {} bytes in all",
                           header_.header_bytes + done_ + came.size(), to_string(header_.type),
                           header_.shape, all));
  }
  done_ += came.size();
  std::byte more{};
  if (bytes_left() == 0 && read_(std::span(&more, 1)) != 0) {
    bad(file_, fmt::format("bytes follow the {} {} of the .npy header, which end at byte {}",
                           to_string(header_.type), header_.shape, all));
  }
  if (header_.byte_order == ByteOrder::big) swap_byte_order(header_.type, came);
  if (header_.type == DType::boolean) {
    for (std::byte& value : came) value = std::byte{value != std::byte{0}};
  }
}

}  // namespace lockstep::format
