#include "sys/disk.h"

#include <fmt/format.h>

#include "lockstep/error.h"

namespace lockstep::sys {

void write_all(File& file, std::uint64_t offset, std::span<const std::byte> from) {
  while (!from.empty()) {
    const std::size_t written = file.write(offset, from);
    offset += written;
    from = from.subspan(written);
  }
}

void read_all(File& file, std::uint64_t offset, std::span<std::byte> into) {
  const std::uint64_t start = offset;
  const std::size_t wanted = into.size();
  while (!into.empty()) {
    const std::size_t got = file.read(offset, into);
    if (got == 0) {
      throw DataError(fmt::format(
          "{} ends at byte {}, {} bytes were expected from byte {}: it is truncated or not what "
          "it should be",
          file.path(), offset, wanted, start));
    }
    offset += got;
    into = into.subspan(got);
  }
}

}  // namespace lockstep::sys
