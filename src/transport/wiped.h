// Wiped: bytes of a secret on the stack, which are wiped on the way out, whichever it is.
//
// Thread rule: a value that does not move.
#pragma once

#include <string.h>

#include <array>
#include <cstddef>

namespace lockstep::transport {

template <std::size_t size>
struct Wiped {
  Wiped() = default;
  Wiped(const Wiped&) = delete;
  Wiped& operator=(const Wiped&) = delete;
  ~Wiped() { ::explicit_bzero(bytes.data(), size); }
  std::array<std::byte, size> bytes{};
};

}  // namespace lockstep::transport
