// Little-endian numbers in byte arrays.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>

namespace lockstep::wire {

// Numbers are copied as they lie in memory; every platform we build for agrees with the wire.
static_assert(std::endian::native == std::endian::little, "the wire format is little endian");

template <class T>
void put(std::byte* at, T value) noexcept {
  std::memcpy(at, &value, sizeof(value));
}

template <class T>
T get(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

}  // namespace lockstep::wire
