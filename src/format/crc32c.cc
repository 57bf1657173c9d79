#include "format/crc32c.h"

#include <isa-l.h>

#include <algorithm>

namespace lockstep::format {

std::uint32_t crc32c(std::span<const std::byte> bytes) noexcept {
  constexpr std::size_t kMost = std::size_t{1} << 30;  // the library counts in int
  std::uint32_t crc = ~std::uint32_t{0};
  do {
    const auto now = bytes.first(std::min(bytes.size(), kMost));
    // The library only reads, whatever its signature says.
    auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(now.data()));
    crc = ::crc32_iscsi(data, static_cast<int>(now.size()), crc);
    bytes = bytes.subspan(now.size());
  } while (!bytes.empty());
  return ~crc;
}

}  // namespace lockstep::format
