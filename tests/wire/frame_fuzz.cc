// Any bytes, in pieces of any size: the reader finds frames or an error, reads nothing it was not
// given and never gives out a payload larger than a control frame may have; what the payloads hold
// is read or refused. The first byte chooses the size of the pieces. With its highest bit set the
// frames get headers that are in order, since nobody guesses their check; some of them with a CRC
// that is right, some with one that is not.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

#include "base/crc32c.h"
#include "wire/abort.h"
#include "wire/frame.h"
#include "wire/hello.h"

namespace {

using namespace lockstep::wire;

/// A length that a frame of this type may have.
std::uint32_t length_for(FrameType type, std::uint32_t any) {
  switch (type) {
    case FrameType::operation:
      return sizeof(Descriptor);
    case FrameType::pulse:
      return kPulseBytes;
    case FrameType::hello:
      return sizeof(Hello);
    case FrameType::ready:
    case FrameType::accepted:
      return 0;
    case FrameType::departures:
      return static_cast<std::uint32_t>(sizeof(Departure)) * (1 + any % 128);
    case FrameType::standings:
      return 8 * (1 + any % 512);
    case FrameType::positions:
      return static_cast<std::uint32_t>(sizeof(Position)) * (any % 171);
    case FrameType::data:
    case FrameType::abort:
    case FrameType::notice:
    case FrameType::members:
      break;
  }
  return 1 + any % kMaxControlPayload;
}

/// Puts good headers where headers belong, up to one that is to stay as it came.
void repair(std::span<std::byte> stream) {
  while (stream.size() >= kHeaderBytes) {
    const auto byte = [&](std::size_t i) { return std::to_integer<std::uint32_t>(stream[i]); };
    if (byte(6) == 255) return;
    Header header;
    header.type = static_cast<FrameType>(1 + byte(5) % static_cast<int>(kLastFrameType));
    header.generation = byte(8);
    header.sequence = byte(16);
    header.length = length_for(header.type, byte(24) | byte(25) << 8U);
    const auto behind = stream.subspan(kHeaderBytes);
    const auto payload = behind.first(std::min<std::size_t>(header.length, behind.size()));
    if (byte(7) % 4 == 1) header.crc = lockstep::crc32c(payload);
    if (byte(7) % 4 == 2) header.crc = byte(28);
    encode(header, stream.first<kHeaderBytes>());
    stream = behind.subspan(payload.size());
  }
}

void expect_printable(std::string_view text) {
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x20 || code == 0x7F) std::abort();
  }
}

/// Reads the payload as those do who get the frame.
void look_at(const FrameReader& reader) {
  constexpr int kRanks = 4;
  if (reader.payload().size() > kMaxControlPayload) std::abort();
  switch (reader.header().type) {
    case FrameType::operation:
      expect_printable(describe(reader.descriptor()));
      break;
    case FrameType::pulse:
      expect_printable(describe(reader.pulse().latest));
      break;
    case FrameType::hello: {
      Hello hello;
      if (decode(reader.payload().first<sizeof(Hello)>(), hello).ok()) {
        expect_printable(describe(hello));
      }
      break;
    }
    case FrameType::abort: {
      Abort abort;
      if (!decode(reader.payload(), kRanks, abort).ok()) break;
      for (const int culprit : abort.cause.culprits()) {
        if (culprit < 0 || culprit >= kRanks) std::abort();
      }
      break;
    }
    case FrameType::departures:
      if (reader.departures().size() != reader.payload().size() / sizeof(Departure)) std::abort();
      break;
    case FrameType::standings:
      if (reader.standings().begun.size() != reader.payload().size() / 8 - 1) std::abort();
      break;
    case FrameType::positions:
      if (reader.positions().size() != reader.payload().size() / sizeof(Position)) std::abort();
      break;
    case FrameType::data:
    case FrameType::notice:
    case FrameType::ready:
    case FrameType::accepted:
    case FrameType::members:
      break;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t piece = 1 + data[0] % 64;
  const auto given = std::as_bytes(std::span(data, size)).subspan(1);
  std::vector<std::byte> bytes_of_stream(given.begin(), given.end());
  if (data[0] >= 128) repair(bytes_of_stream);
  std::span<const std::byte> stream = bytes_of_stream;
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
        case FrameReader::Event::altered:
        case FrameReader::Event::bad:
          if (reader.error().ok()) std::abort();
          return 0;
        case FrameReader::Event::data:
          skip = reader.header().length;
          break;
        case FrameReader::Event::frame:
          if (!verify(reader.header(), reader.payload()).ok()) std::abort();
          look_at(reader);
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
