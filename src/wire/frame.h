// Frame: how everything travels between two ranks, on data and on control connections.
//
// A frame is a header of 36 bytes, little endian, and `length` bytes of payload:
//
//   0 magic  4 version  5 type  6 flags  8 generation  16 sequence  24 length  28 crc  32 check
//
// The check is a 32-bit hash of the bytes before it; changing one word of a header always changes
// it. Payloads are fixed in size or bounded by 4 KiB, except data, which goes straight into memory
// that somebody has posted: nothing is ever allocated from a length that came over the wire.
//
// Where nothing below sees to it that what is read is what was written (plain TCP; not TLS, not the
// memory of one machine), the header has the CRC-32C of the payload, and the first flag says so. It
// stands before the payload, so that who has read the last byte knows at once whether all is well.
//
//   std::array<std::byte, kHeaderBytes> bytes;
//   encode({.type = FrameType::data, .generation = 1, .sequence = 7, .length = 100}, bytes);
//
//   FrameReader reader(Check::crc32c);        // any number of bytes at a time
//   while (reader.next(arrived) == FrameReader::Event::frame) handle(reader.header(), ...);
//
// Thread rule: one thread a reader.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "wire/descriptor.h"

namespace lockstep::wire {

enum class FrameType : std::uint8_t {
  operation = 1,   // Descriptor: the sender has begun this operation; precedes its first data
  data = 2,        // bytes of the operation announced last
  pulse = 3,       // Pulse: the sender is alive, and this is where it stands
  abort = 4,       // Abort: the generation is over, or should be
  departures = 5,  // Departures: ranks have closed their sessions of groups
  hello = 6,       // Hello: who the sender is; the first frame of every connection
  notice = 7,      // text for the receiver's log, while ranks join
  ready = 8,       // nothing: the sender has all it needs, or all ranks have
  accepted = 9,    // nothing: the sender has read the Hello and keeps the connection
  standings = 10,  // Standings: where the ranks stand in one group
  positions = 11,  // Position of the sender in each of its groups
  members = 12,    // some rows of the roster (members.h), while ranks join
};
inline constexpr FrameType kLastFrameType = FrameType::members;

/// Whether the frames of a connection must have a CRC-32C of their payloads.
enum class Check : std::uint8_t { none, crc32c };

struct Header {
  FrameType type = FrameType::data;
  std::uint64_t generation = 0;
  std::uint64_t sequence = 0;  // operation and data: of the operation; else 0
  std::uint32_t length = 0;
  std::optional<std::uint32_t> crc = {};  // of the payload
  friend bool operator==(const Header&, const Header&) = default;
};

inline constexpr std::size_t kHeaderBytes = 36;
inline constexpr std::size_t kMaxControlPayload = 4096;
inline constexpr std::size_t kMaxDataPayload = std::size_t{1} << 30;
/// Of data frames with a CRC: so much stays in a cache between its checksum and its transfer.
inline constexpr std::size_t kCheckedPayload = std::size_t{256} << 10;

/// Where a rank stands: the last operation it has begun (sequence 0: none) and a digest of all it
/// has asked for up to there.
struct Pulse {
  Descriptor latest;
  std::uint64_t history = 0;
  friend bool operator==(const Pulse&, const Pulse&) = default;
};

/// A rank that takes part in one group no more, and the first of the group's operations it misses.
/// Passed on by others, so it names the rank.
struct Departure {
  std::int32_t rank = -1;
  std::uint32_t more = 0;    // so many of the ranks after it have done the same
  std::uint64_t number = 0;  // of this rank's departures, from 1: what is not higher is known
  std::uint64_t group = 0;   // kAllGroups: it leaves the generation
  std::uint64_t next = 0;
  friend bool operator==(const Departure&, const Departure&) = default;
};

inline constexpr std::uint64_t kAllGroups = UINT64_MAX;

/// The operation of a group that the sender has begun last, 0: none yet; and the fingerprint of what
/// it asks for.
struct Position {
  std::uint64_t group = 0;
  std::uint64_t begun = 0;
  std::uint64_t request = 0;
  friend bool operator==(const Position&, const Position&) = default;
};

/// The operation of one group that each rank of the generation has begun last.
struct Standings {
  std::uint64_t group = 0;
  std::vector<std::uint64_t> begun;  // by rank
  friend bool operator==(const Standings&, const Standings&) = default;
};
/// Of a rank that is not in the group, or has not spoken of it.
inline constexpr std::uint64_t kNoPosition = UINT64_MAX;

inline constexpr std::size_t kPulseBytes = sizeof(Descriptor) + 8;

/// Of frames. Other versions may have other headers, but begin with the same magic and their number.
inline constexpr std::uint8_t kFrameVersion = 2;
/// The version of a frame that another version of lockstep has sent; empty if it is of this one, or
/// no frame at all.
std::optional<int> foreign_version(std::span<const std::byte, kHeaderBytes> bytes) noexcept;

void encode(const Header& header, std::span<std::byte, kHeaderBytes> into) noexcept;
/// DataError naming the field that is wrong: magic, version, check, type, flags or length; or that
/// the CRC is missing where it is due.
Status decode(std::span<const std::byte, kHeaderBytes> bytes, Header& header,
              Check due = Check::none);
/// DataError if the header has another CRC than this payload.
Status verify(const Header& header, std::span<const std::byte> payload);

void encode(const Descriptor& descriptor, std::span<std::byte, sizeof(Descriptor)> into) noexcept;
Descriptor decode_descriptor(std::span<const std::byte, sizeof(Descriptor)> bytes) noexcept;
void encode(const Pulse& pulse, std::span<std::byte, kPulseBytes> into) noexcept;
Pulse decode_pulse(std::span<const std::byte, kPulseBytes> bytes) noexcept;

/// The payloads of as many frames as it takes. Ranks that have done the same become one entry; the
/// departures of each rank stay in the order of their numbers.
std::vector<std::vector<std::byte>> encode(std::vector<Departure> departures);
/// The payload of a frame; ranks or groups beyond what fits are left out.
std::vector<std::byte> encode(const Standings& standings);
std::vector<std::byte> encode(std::span<const Position> positions);

/// Finds the frames in a stream that arrives in pieces of any size.
class FrameReader {
 public:
  enum class Event : std::uint8_t {
    more,     // all given bytes are taken and no frame is complete
    frame,    // a frame other than data: header() and payload(), good until the next call
    data,     // a data frame begins: the next header().length bytes of the stream are the caller's
              // to take, and to compare with header().crc, before it calls next() again
    altered,  // a frame other than data is not as it was sent, but for its header(); final
    bad,      // error() says why; final
  };

  /// `due`: frames without a CRC are refused. One that is there always counts.
  explicit FrameReader(Check due = Check::none) noexcept : due_(due) {}

  /// Takes bytes from the front of `bytes`, as few as it needs.
  Event next(std::span<const std::byte>& bytes);

  [[nodiscard]] const Header& header() const noexcept { return header_; }
  [[nodiscard]] std::span<const std::byte> payload() const noexcept {
    return std::span(buffer_).subspan(kHeaderBytes, header_.length);
  }
  /// For a frame of that type: its payload has the right size, next() has seen to it.
  [[nodiscard]] Descriptor descriptor() const noexcept;
  [[nodiscard]] Pulse pulse() const noexcept;
  [[nodiscard]] std::vector<Departure> departures() const;
  [[nodiscard]] Standings standings() const;
  [[nodiscard]] std::vector<Position> positions() const;
  [[nodiscard]] const Status& error() const noexcept { return error_; }

 private:
  /// Fills the buffer up to `size` bytes; true when it holds them.
  bool fill(std::span<const std::byte>& bytes, std::size_t size) noexcept;

  Check due_;
  std::array<std::byte, kHeaderBytes + kMaxControlPayload> buffer_;
  std::size_t filled_ = 0;
  bool header_known_ = false;
  Header header_;
  Status error_;
};

}  // namespace lockstep::wire
