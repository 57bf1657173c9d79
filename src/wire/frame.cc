#include "wire/frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <string>
#include <tuple>

#include "base/crc32c.h"
#include "wire/bytes.h"
#include "wire/hello.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lockstep::wire {
namespace {

constexpr std::uint32_t kMagic = 0x5446534C;  // "LSFT" as it lies on the wire
constexpr std::uint16_t kHasCrc = 1;
constexpr std::size_t kCheckAt = 32;

Status bad(std::string what) {
  return {ErrorKind::data_error, Code::data_loss,
          "unreadable frame: " + std::move(what) +
              "; the peer runs another program or version, or the stream is damaged"};
}

/// Whether a frame of this type may have a payload of this length.
bool plausible(FrameType type, std::uint32_t length) noexcept {
  switch (type) {
    case FrameType::operation:
      return length == sizeof(Descriptor);
    case FrameType::data:
      return length > 0 && length <= kMaxDataPayload;
    case FrameType::pulse:
      return length == kPulseBytes;
    case FrameType::abort:
      return length > 0 && length <= kMaxControlPayload;
    case FrameType::hello:
      return length == sizeof(Hello);
    case FrameType::notice:
    case FrameType::members:
      return length > 0 && length <= kMaxControlPayload;
    case FrameType::ready:
    case FrameType::accepted:
      return length == 0;
    case FrameType::departures:
      return length > 0 && length <= kMaxControlPayload && length % sizeof(Departure) == 0;
    case FrameType::standings:
      return length >= sizeof(std::uint64_t) && length <= kMaxControlPayload &&
             length % sizeof(std::uint64_t) == 0;
    case FrameType::positions:
      return length <= kMaxControlPayload && length % sizeof(Position) == 0;
  }
  return false;
}

}  // namespace

std::optional<int> foreign_version(std::span<const std::byte, kHeaderBytes> bytes) noexcept {
  const auto version = get<std::uint8_t>(bytes.data() + 4);
  if (get<std::uint32_t>(bytes.data()) != kMagic || version == kFrameVersion) return std::nullopt;
  return version;
}

void encode(const Header& header, std::span<std::byte, kHeaderBytes> into) noexcept {
  assert(plausible(header.type, header.length));
  std::byte* at = into.data();
  put(at, kMagic);
  put(at + 4, kFrameVersion);
  put(at + 5, header.type);
  put(at + 6, header.crc ? kHasCrc : std::uint16_t{0});
  put(at + 8, header.generation);
  put(at + 16, header.sequence);
  put(at + 24, header.length);
  put(at + 28, header.crc.value_or(0));
  put(at + kCheckAt, XXH32(at, kCheckAt, kMagic));
}

Status decode(std::span<const std::byte, kHeaderBytes> bytes, Header& header, Check due) {
  const std::byte* at = bytes.data();
  if (get<std::uint32_t>(at) != kMagic) {
    return bad(fmt::format("magic is {:08x}, not {:08x}", get<std::uint32_t>(at), kMagic));
  }
  // Before the check, which another version may have elsewhere.
  if (get<std::uint8_t>(at + 4) != kFrameVersion) {
    return bad(fmt::format("version is {}, not {}", get<std::uint8_t>(at + 4), kFrameVersion));
  }
  if (get<std::uint32_t>(at + kCheckAt) != XXH32(at, kCheckAt, kMagic)) {
    return bad("the header's check is wrong");
  }
  const auto type = get<std::uint8_t>(at + 5);
  if (type < static_cast<int>(FrameType::operation) || type > static_cast<int>(kLastFrameType)) {
    return bad(fmt::format("type {} is unknown", type));
  }
  const auto flags = get<std::uint16_t>(at + 6);
  if ((flags & ~kHasCrc) != 0) return bad("flags are set that this version does not know");
  header.type = static_cast<FrameType>(type);
  header.generation = get<std::uint64_t>(at + 8);
  header.sequence = get<std::uint64_t>(at + 16);
  header.length = get<std::uint32_t>(at + 24);
  if (!plausible(header.type, header.length)) {
    return bad(fmt::format("length {} is impossible for type {}", header.length, type));
  }
  header.crc.reset();
  if ((flags & kHasCrc) != 0) header.crc = get<std::uint32_t>(at + 28);
  if (due == Check::crc32c && !header.crc) return bad("it has no CRC-32C of its payload");
  return {};
}

Status verify(const Header& header, std::span<const std::byte> payload) {
  if (!header.crc || *header.crc == crc32c(payload)) return {};
  return {ErrorKind::data_error, Code::data_loss,
          "unreadable frame: the CRC-32C of its payload is wrong; it was altered on its way"};
}

void encode(const Descriptor& descriptor, std::span<std::byte, sizeof(Descriptor)> into) noexcept {
  put(into.data(), descriptor);
}

Descriptor decode_descriptor(std::span<const std::byte, sizeof(Descriptor)> bytes) noexcept {
  return get<Descriptor>(bytes.data());
}

void encode(const Pulse& pulse, std::span<std::byte, kPulseBytes> into) noexcept {
  put(into.data(), pulse.latest);
  put(into.data() + sizeof(Descriptor), pulse.history);
}

Pulse decode_pulse(std::span<const std::byte, kPulseBytes> bytes) noexcept {
  return {.latest = get<Descriptor>(bytes.data()),
          .history = get<std::uint64_t>(bytes.data() + sizeof(Descriptor))};
}

std::vector<std::vector<std::byte>> encode(std::vector<Departure> departures) {
  std::sort(departures.begin(), departures.end(), [](const Departure& a, const Departure& b) {
    return std::tie(a.number, a.group, a.next, a.rank) <
           std::tie(b.number, b.group, b.next, b.rank);
  });
  std::vector<Departure> entries;
  for (const Departure& each : departures) {
    if (!entries.empty()) {
      Departure& last = entries.back();
      const bool same =
          last.number == each.number && last.group == each.group && last.next == each.next;
      const auto behind = static_cast<std::int64_t>(last.rank) + last.more + 1;
      if (same && each.more == 0 && each.rank == behind) {
        ++last.more;
        continue;
      }
    }
    entries.push_back(each);
  }
  constexpr std::size_t kMost = kMaxControlPayload / sizeof(Departure);
  std::vector<std::vector<std::byte>> payloads;
  for (std::size_t at = 0; at < entries.size(); at += kMost) {
    const auto part = std::span(entries).subspan(at, std::min(kMost, entries.size() - at));
    const auto bytes = std::as_bytes(part);
    payloads.emplace_back(bytes.begin(), bytes.end());
  }
  return payloads;
}

std::vector<std::byte> encode(const Standings& standings) {
  constexpr std::size_t kMost = kMaxControlPayload / sizeof(std::uint64_t) - 1;
  const auto begun = std::span(standings.begun).first(std::min(standings.begun.size(), kMost));
  std::vector<std::byte> payload(sizeof(std::uint64_t) + begun.size_bytes());
  put(payload.data(), standings.group);
  std::copy_n(std::as_bytes(begun).begin(), begun.size_bytes(),
              payload.begin() + sizeof(std::uint64_t));
  return payload;
}

std::vector<std::byte> encode(std::span<const Position> positions) {
  const auto fits = std::as_bytes(
      positions.first(std::min(positions.size(), kMaxControlPayload / sizeof(Position))));
  return {fits.begin(), fits.end()};
}

FrameReader::Event FrameReader::next(std::span<const std::byte>& bytes) {
  if (!error_.ok()) return Event::bad;
  if (!header_known_) {
    if (!fill(bytes, kHeaderBytes)) return Event::more;
    error_ = decode(std::span(buffer_).first<kHeaderBytes>(), header_, due_);
    if (!error_.ok()) return Event::bad;
    if (header_.type == FrameType::data) {
      filled_ = 0;
      return Event::data;
    }
    header_known_ = true;
  }
  if (!fill(bytes, kHeaderBytes + header_.length)) return Event::more;
  filled_ = 0;
  header_known_ = false;
  error_ = verify(header_, payload());
  return error_.ok() ? Event::frame : Event::altered;
}

bool FrameReader::fill(std::span<const std::byte>& bytes, std::size_t size) noexcept {
  const std::size_t now = std::min(size - filled_, bytes.size());
  std::copy_n(bytes.begin(), now, buffer_.begin() + static_cast<std::ptrdiff_t>(filled_));
  filled_ += now;
  bytes = bytes.subspan(now);
  return filled_ == size;
}

Descriptor FrameReader::descriptor() const noexcept {
  assert(header_.type == FrameType::operation);
  return decode_descriptor(payload().first<sizeof(Descriptor)>());
}

Pulse FrameReader::pulse() const noexcept {
  assert(header_.type == FrameType::pulse);
  return decode_pulse(payload().first<kPulseBytes>());
}

std::vector<Departure> FrameReader::departures() const {
  assert(header_.type == FrameType::departures);
  std::vector<Departure> departures(payload().size() / sizeof(Departure));
  std::copy_n(payload().begin(), payload().size(),
              std::as_writable_bytes(std::span(departures)).begin());
  return departures;
}

Standings FrameReader::standings() const {
  assert(header_.type == FrameType::standings);
  const auto begun = payload().subspan(sizeof(std::uint64_t));
  Standings standings{.group = get<std::uint64_t>(payload().data()),
                      .begun = std::vector<std::uint64_t>(begun.size() / sizeof(std::uint64_t))};
  std::copy_n(begun.begin(), begun.size(),
              std::as_writable_bytes(std::span(standings.begun)).begin());
  return standings;
}

std::vector<Position> FrameReader::positions() const {
  assert(header_.type == FrameType::positions);
  std::vector<Position> positions(payload().size() / sizeof(Position));
  std::copy_n(payload().begin(), payload().size(),
              std::as_writable_bytes(std::span(positions)).begin());
  return positions;
}

}  // namespace lockstep::wire
