#include "lockstep/array_file.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "format/byte_source.h"
#include "format/idx.h"
#include "format/npy.h"
#include "format/record_frame.h"

namespace lockstep {
namespace {

using format::ByteSource;

std::optional<ArrayFormat> format_of(std::span<const std::byte> head) {
  constexpr std::string_view kNpyMagic = "\x93NUMPY";
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (text.starts_with(kNpyMagic)) return ArrayFormat::npy;
  // A record of 524,288 bytes begins as IDX does; a checksum that is right decides.
  if (head.size() >= format::kRecordHeader &&
      format::record_length(head.first<format::kRecordHeader>())) {
    return std::nullopt;
  }
  constexpr std::string_view kIdxTypes = "\x08\x09\x0b\x0c\x0d\x0e";
  const bool idx = head.size() >= format::kIdxPrefixBytes && text[0] == 0 && text[1] == 0 &&
                   kIdxTypes.find(text[2]) != std::string_view::npos && text[3] != 0;
  return idx ? std::optional(ArrayFormat::idx) : std::nullopt;
}

format::ReadBytes bytes_of(ByteSource& source) {
  return [&source](std::span<std::byte> into) { return source.read(into); };
}

}  // namespace

std::optional<ArrayFileInfo> array_file_info(const std::string& path) {
  std::array<std::byte, format::kHeadBytes> head;
  const auto first = format::open_file(path);
  const std::size_t got = format::read_fully(bytes_of(*first), head);
  const auto kind = format_of(std::span<const std::byte>(head).first(got));
  if (!kind) return std::nullopt;
  const auto source = format::open_file(path);
  if (*kind == ArrayFormat::npy) {
    const format::NpyReader array(bytes_of(*source), path);
    return ArrayFileInfo{*kind, array.header().type, array.header().shape};
  }
  const format::IdxReader array(bytes_of(*source), path);
  return ArrayFileInfo{*kind, array.header().type, array.header().shape};
}

}  // namespace lockstep
