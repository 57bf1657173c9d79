// Bytes for tests: written as numbers or text, and streams that give them in small pieces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/read_bytes.h"

namespace lockstep::format {

using Bytes = std::vector<std::byte>;

inline Bytes bytes(std::initializer_list<int> values) {
  Bytes out;
  for (const int value : values) out.push_back(static_cast<std::byte>(value));
  return out;
}

inline Bytes bytes(std::string_view text) {
  const auto raw = std::as_bytes(std::span(text));
  return {raw.begin(), raw.end()};
}

inline std::string text(std::span<const std::byte> raw) {
  return {reinterpret_cast<const char*>(raw.data()), raw.size()};
}

inline Bytes operator+(Bytes left, const Bytes& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

/// A stream that gives at most `piece` bytes a call.
inline ReadBytes in_pieces(std::span<const std::byte> memory, std::size_t piece) {
  return [read = bytes_of(memory), piece](std::span<std::byte> into) {
    return read(into.first(std::min(into.size(), piece)));
  };
}

/// Calls `use` with every copy of `whole` in which one bit is turned.
template <class Use>
void with_each_bit_turned(const Bytes& whole, const Use& use) {
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      Bytes turned = whole;
      turned[i] ^= std::byte{1} << bit;
      use(turned);
    }
  }
}

}  // namespace lockstep::format
