// Any bytes, in pieces of any size: the reader finds frames or an error, reads nothing it was not
// given and never gives out a payload larger than a control frame may have.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "wire/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using lockstep::wire::FrameReader;
  if (size == 0) return 0;
  const std::size_t piece = 1 + data[0] % 64;
  std::span<const std::byte> stream = std::as_bytes(std::span(data, size)).subspan(1);
  FrameReader reader;
  std::uint64_t skip = 0;  // of a data frame's payload
  while (!stream.empty()) {
    std::span<const std::byte> bytes = stream.first(std::min(piece, stream.size()));
    stream = stream.subspan(bytes.size());
    while (!bytes.empty()) {
      const auto skipped = std::min<std::uint64_t>(skip, bytes.size());
      skip -= skipped;
      bytes = bytes.subspan(skipped);
      if (bytes.empty()) break;
      const std::size_t before = bytes.size();
      switch (reader.next(bytes)) {
        case FrameReader::Event::bad:
          if (reader.error().ok()) std::abort();
          return 0;
        case FrameReader::Event::data:
          skip = reader.header().length;
          break;
        case FrameReader::Event::frame:
          if (reader.payload().size() > lockstep::wire::kMaxControlPayload) std::abort();
          break;
        case FrameReader::Event::more:
          if (!bytes.empty()) std::abort();
          break;
      }
      if (bytes.size() > before) std::abort();
    }
  }
  return 0;
}
