// Whether malloc is glibc's as it comes, or keeps what is freed.
#pragma once

#include <malloc.h>

#include <cstdlib>
#include <memory>

namespace lockstep {

/// True if a block of 64 MiB gets pages of its own (mmap), which go back to the system when it is
/// freed. So it is unless malloc was told otherwise, whatever was allocated before.
inline bool malloc_maps_large_blocks() {
  const auto mapped = [] { return mallinfo2().hblkhd; };
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  const std::size_t before = mapped();
  const std::unique_ptr<void, void (*)(void*)> block(std::malloc(kBytes), std::free);
  *static_cast<volatile char*>(block.get()) = 1;
  return mapped() >= before + kBytes;
}

}  // namespace lockstep
