#include "format/tokens.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "format/elements.h"
#include "lockstep/error.h"

namespace lockstep::format {
namespace {

/// Tokens of type T that lie at the end of `into` become int64s from its start on. A token is read
/// before the memory it lies in is written: number i + 1 of them begins behind the end of int64 i.
template <class T>
void widen(std::span<std::int64_t> into) noexcept {
  const auto bytes = std::as_bytes(into);
  const std::byte* from = bytes.data() + bytes.size() - into.size() * sizeof(T);
  for (std::int64_t& token : into) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    token = static_cast<std::int64_t>(value);
    from += sizeof(T);
  }
}

}  // namespace

std::size_t size_of(TokenType type) noexcept {
  constexpr std::size_t sizes[] = {1, 2, 4, 4, 8};
  return sizes[static_cast<std::size_t>(type)];
}

std::string_view to_string(TokenType type) noexcept {
  constexpr std::string_view names[] = {"uint8", "uint16", "uint32", "int32", "int64"};
  return names[static_cast<std::size_t>(type)];
}

TokenFile::TokenFile(ReadAt read, std::uint64_t file_bytes, TokenType type, std::string file)
    : read_(std::move(read)),
      count_(file_bytes / size_of(type)),
      type_(type),
      file_(std::move(file)) {
  if (const auto rest = file_bytes % size_of(type); rest != 0) {
    throw DataError(fmt::format(
        "{}: {} bytes are {} tokens of {} bytes ({}) and a rest of {}; the file is cut off or its "
        "tokens have another type",
        file_, file_bytes, count_, size_of(type), to_string(type), rest));
  }
}

std::uint64_t TokenFile::count(TokenWindows windows) const {
  if (windows.length == 0 || windows.stride == 0) {
    throw InvalidUsage(fmt::format("{}: windows need a length and a stride, not {} and {}", file_,
                                   windows.length, windows.stride));
  }
  return count_ < windows.length ? 0 : (count_ - windows.length) / windows.stride + 1;
}

void TokenFile::read(std::uint64_t first, std::span<std::int64_t> into) const {
  if (first > count_ || into.size() > count_ - first) {
    throw InvalidUsage(fmt::format("{}: tokens {} to {} were asked for, the file has {}", file_,
                                   first, first + into.size(), count_));
  }
  const std::size_t size = size_of(type_);
  const auto raw = std::as_writable_bytes(into).last(into.size() * size);
  if (const std::size_t came = read_(first * size, raw); came != raw.size()) {
    throw DataError(fmt::format("{}: the file ends at byte {}, it had {} tokens of {} bytes", file_,
                                first * size + came, count_, size));
  }
  switch (type_) {
    case TokenType::uint8:
      return widen<std::uint8_t>(into);
    case TokenType::uint16:
      return widen<std::uint16_t>(into);
    case TokenType::uint32:
      return widen<std::uint32_t>(into);
    case TokenType::int32:
      return widen<std::int32_t>(into);
    case TokenType::int64:
      return;
  }
}

}  // namespace lockstep::format
