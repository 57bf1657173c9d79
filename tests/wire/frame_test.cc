#include "wire/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <vector>

#include "base/crc32c.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lockstep::wire {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<std::byte>;
using HeaderBytes = std::array<std::byte, kHeaderBytes>;

HeaderBytes encoded(const Header& header) {
  HeaderBytes bytes;
  encode(header, bytes);
  return bytes;
}

constexpr Header kData{.type = FrameType::data, .generation = 3, .sequence = 9, .length = 5};

void append(Bytes& stream, const Header& header) {
  const HeaderBytes bytes = encoded(header);
  stream.insert(stream.end(), bytes.begin(), bytes.end());
}

Descriptor sample_descriptor() {
  Descriptor d;
  d.sequence = 9;
  d.count = 1000;
  d.name = Name("w");
  return d;
}

constexpr Departure kDeparture{.rank = 2, .number = 5, .group = UINT64_MAX - 1, .next = 7};
constexpr Departure kGoodbye{.rank = 4, .number = 6, .group = kAllGroups, .next = 10};

/// A frame of generation 3.
void append(Bytes& stream, FrameType type, std::uint64_t sequence,
            std::span<const std::byte> payload, Check check) {
  Header header{.type = type,
                .generation = 3,
                .sequence = sequence,
                .length = static_cast<std::uint32_t>(payload.size())};
  if (check == Check::crc32c) header.crc = crc32c(payload);
  append(stream, header);
  stream.insert(stream.end(), payload.begin(), payload.end());
}

Bytes operation_frame(Check check) {
  Bytes stream;
  std::array<std::byte, sizeof(Descriptor)> descriptor;
  encode(sample_descriptor(), descriptor);
  append(stream, FrameType::operation, 9, descriptor, check);
  return stream;
}

/// An operation, a data frame of 5 bytes, a pulse, departures.
Bytes sample_stream(Check check) {
  Bytes stream = operation_frame(check);
  Bytes data;
  for (int i = 0; i < 5; ++i) data.push_back(static_cast<std::byte>(0xA0 + i));
  append(stream, FrameType::data, 9, data, check);
  std::array<std::byte, kPulseBytes> pulse;
  encode(Pulse{.latest = sample_descriptor(), .history = 77}, pulse);
  append(stream, FrameType::pulse, 0, pulse, check);
  append(stream, FrameType::departures, 0, encode({kDeparture, kGoodbye}).front(), check);
  return stream;
}

/// Reads the sample stream in pieces of `piece` bytes and checks every frame of it.
void read_sample_in_pieces_of(std::size_t piece, Check check) {
  const Bytes stream = sample_stream(check);
  FrameReader reader(check);
  std::vector<FrameType> seen;
  Bytes data;
  std::size_t data_left = 0;
  for (std::size_t at = 0; at < stream.size(); at += piece) {
    std::span<const std::byte> bytes =
        std::span(stream).subspan(at, std::min(piece, stream.size() - at));
    while (!bytes.empty()) {
      if (data_left > 0) {
        data.push_back(bytes.front());
        bytes = bytes.subspan(1);
        --data_left;
        continue;
      }
      const FrameReader::Event event = reader.next(bytes);
      ASSERT_NE(event, FrameReader::Event::bad) << reader.error().message();
      if (event == FrameReader::Event::more) continue;
      seen.push_back(reader.header().type);
      EXPECT_EQ(reader.header().generation, 3U);
      if (event == FrameReader::Event::data) {
        Header expected = kData;
        expected.crc = reader.header().crc;
        EXPECT_EQ(reader.header(), expected);
        EXPECT_EQ(reader.header().crc.has_value(), check == Check::crc32c);
        data_left = reader.header().length;
      } else if (reader.header().type == FrameType::operation) {
        EXPECT_EQ(reader.descriptor(), sample_descriptor());
      } else if (reader.header().type == FrameType::pulse) {
        EXPECT_EQ(reader.pulse(), (Pulse{.latest = sample_descriptor(), .history = 77}));
      } else {
        EXPECT_EQ(reader.departures(), (std::vector{kDeparture, kGoodbye}));
      }
    }
  }
  EXPECT_EQ(seen, (std::vector{FrameType::operation, FrameType::data, FrameType::pulse,
                               FrameType::departures}));
  EXPECT_EQ(data.size(), 5U);
  EXPECT_EQ(data.front(), std::byte{0xA0});
  EXPECT_EQ(data.back(), std::byte{0xA4});
}

TEST(Departures, RanksThatHaveDoneTheSameAreOneEntry) {
  std::vector<Departure> departures;
  for (const int rank : {5, 3, 4, 9}) {
    departures.push_back({.rank = rank, .number = 1, .group = 0, .next = 8});
    departures.push_back({.rank = rank, .number = 2, .group = kAllGroups, .next = 8});
  }
  departures.push_back({.rank = 6, .number = 1, .group = 0, .next = 9});
  const auto payloads = encode(departures);
  ASSERT_EQ(payloads.size(), 1U);
  Bytes stream;
  append(stream, FrameType::departures, 0, payloads.front(), Check::none);
  FrameReader reader;
  std::span<const std::byte> bytes = stream;
  ASSERT_EQ(reader.next(bytes), FrameReader::Event::frame);
  EXPECT_EQ(reader.departures(),
            (std::vector<Departure>{
                {.rank = 3, .more = 2, .number = 1, .group = 0, .next = 8},
                {.rank = 9, .more = 0, .number = 1, .group = 0, .next = 8},
                {.rank = 6, .more = 0, .number = 1, .group = 0, .next = 9},
                {.rank = 3, .more = 2, .number = 2, .group = kAllGroups, .next = 8},
                {.rank = 9, .more = 0, .number = 2, .group = kAllGroups, .next = 8}}));
}

TEST(Departures, AreSentInAsManyFramesAsTheyNeed) {
  std::vector<Departure> departures;
  for (int rank = 0; rank < 1000; ++rank) {
    departures.push_back(
        {.rank = rank, .number = 1, .group = static_cast<std::uint64_t>(rank), .next = 8});
  }
  std::size_t bytes = 0;
  for (const auto& payload : encode(departures)) {
    EXPECT_LE(payload.size(), kMaxControlPayload);
    bytes += payload.size();
  }
  EXPECT_EQ(bytes, 1000 * sizeof(Departure));
}

TEST(FrameReader, ReadsPiecesOfAnySize) {
  for (const Check check : {Check::none, Check::crc32c}) {
    const std::size_t whole = sample_stream(check).size();
    for (std::size_t piece = 1; piece <= whole; ++piece) read_sample_in_pieces_of(piece, check);
  }
}

/// What a reader that wants a CRC finds in these bytes, given in pieces of that size.
FrameReader::Event found_in(const Bytes& stream, std::size_t piece) {
  FrameReader reader(Check::crc32c);
  FrameReader::Event event = FrameReader::Event::more;
  for (std::size_t at = 0; at < stream.size() && event == FrameReader::Event::more; at += piece) {
    auto bytes = std::span(stream).subspan(at, std::min(piece, stream.size() - at));
    event = reader.next(bytes);
  }
  if (event == FrameReader::Event::altered) {
    EXPECT_EQ(reader.error().kind(), ErrorKind::data_error);
    EXPECT_THAT(reader.error().message(), HasSubstr("CRC-32C"));
    std::span<const std::byte> bytes = stream;
    EXPECT_EQ(reader.next(bytes), FrameReader::Event::bad) << "final";
  }
  return event;
}

TEST(FrameReader, EverySingleBitFlipOfAPayloadIsFound) {
  const Bytes good = operation_frame(Check::crc32c);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, good.size()}) {
    EXPECT_EQ(found_in(good, piece), FrameReader::Event::frame);
    for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
      Bytes flipped = good;
      flipped[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
      EXPECT_EQ(found_in(flipped, piece),
                bit / 8 < kHeaderBytes ? FrameReader::Event::bad : FrameReader::Event::altered)
          << "bit " << bit;
    }
  }
}

TEST(FrameReader, AFrameThatIsCutOffIsNone) {
  Bytes stream = operation_frame(Check::crc32c);
  stream.pop_back();
  EXPECT_EQ(found_in(stream, stream.size()), FrameReader::Event::more);
}

TEST(FrameReader, DemandsACrcWhereItIsDue) {
  EXPECT_EQ(found_in(operation_frame(Check::none), 1000), FrameReader::Event::bad);
  FrameReader lenient;
  Bytes stream = operation_frame(Check::crc32c);
  stream.back() ^= std::byte{1};
  std::span<const std::byte> bytes = stream;
  EXPECT_EQ(lenient.next(bytes), FrameReader::Event::altered) << "one that is there counts";
}

TEST(Frame, HeaderComesBackAsItWas) {
  for (const std::optional<std::uint32_t> crc :
       {std::optional<std::uint32_t>(), std::optional(0U), std::optional(0xFEDCBA98U)}) {
    const Header header{.type = FrameType::data,
                        .generation = 0x1122334455667788,
                        .sequence = 0xFFEEDDCCBBAA9988,
                        .length = kMaxDataPayload,
                        .crc = crc};
    Header back{.crc = 7};
    ASSERT_TRUE(decode(encoded(header), back).ok());
    EXPECT_EQ(back, header);
  }
}

TEST(Frame, LayoutIsFixed) {
  const HeaderBytes bytes = encoded({.type = FrameType::data,
                                     .generation = 0x0807060504030201,
                                     .sequence = 0x1817161514131211,
                                     .length = 0x04030201,
                                     .crc = 0x24232221});
  const std::array<int, 32> expected = {'L',  'S',  'F', 'T', 2, 2,    1,    0,    1,    2,    3,
                                        4,    5,    6,   7,   8, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16,
                                        0x17, 0x18, 1,   2,   3, 4,    0x21, 0x22, 0x23, 0x24};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(std::to_integer<int>(bytes[i]), expected[i]) << "byte " << i;
  }
}

TEST(Frame, EverySingleBitFlipIsRejected) {
  for (const Header& header :
       {kData, Header{.type = FrameType::data, .length = 5, .crc = 3},
        Header{.type = FrameType::pulse, .length = kPulseBytes},
        Header{.type = FrameType::abort, .generation = UINT64_MAX, .length = 1}}) {
    const HeaderBytes good = encoded(header);
    for (std::size_t bit = 0; bit < kHeaderBytes * 8; ++bit) {
      HeaderBytes flipped = good;
      flipped[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
      Header decoded;
      EXPECT_FALSE(decode(flipped, decoded).ok()) << "bit " << bit;
    }
  }
}

/// A header with some bytes changed and the check made right again, as another version sends it.
HeaderBytes forged(std::size_t at, std::initializer_list<int> values) {
  HeaderBytes bytes = encoded(kData);
  for (const int value : values) bytes[at++] = static_cast<std::byte>(value);
  const std::uint32_t check = XXH32(bytes.data(), 32, 0x5446534C);
  std::memcpy(&bytes[32], &check, sizeof(check));
  return bytes;
}

TEST(Frame, ErrorsNameTheField) {
  Header header;
  const auto error = [&](const HeaderBytes& bytes) { return decode(bytes, header).message(); };
  EXPECT_THAT(error(forged(0, {'X'})), HasSubstr("magic"));
  EXPECT_THAT(error(forged(4, {1})), HasSubstr("version is 1, not 2"));
  EXPECT_THAT(error(forged(5, {0})), HasSubstr("type 0"));
  EXPECT_THAT(error(forged(5, {6})), HasSubstr("type 6"));
  EXPECT_THAT(error(forged(6, {2})), HasSubstr("flags"));
  EXPECT_THAT(error(forged(6, {0, 1})), HasSubstr("flags"));
  EXPECT_THAT(error(forged(24, {0})), HasSubstr("length 0"));
  EXPECT_THAT(error(forged(24, {255, 255, 255, 255})), HasSubstr("length 4294967295"));
  HeaderBytes wrong = encoded(kData);
  wrong[32] ^= std::byte{1};
  EXPECT_THAT(error(wrong), HasSubstr("check"));
  EXPECT_EQ(decode(wrong, header).kind(), ErrorKind::data_error);
  EXPECT_THAT(decode(encoded(kData), header, Check::crc32c).message(), HasSubstr("no CRC-32C"));
}

TEST(Frame, LengthsAreBoundedByType) {
  Header header;
  const auto accepts = [&](FrameType type, std::uint32_t length) {
    HeaderBytes bytes = forged(5, {static_cast<int>(type)});
    std::memcpy(&bytes[24], &length, sizeof(length));
    const std::uint32_t check = XXH32(bytes.data(), 32, 0x5446534C);
    std::memcpy(&bytes[32], &check, sizeof(check));
    return decode(bytes, header).ok();
  };
  EXPECT_TRUE(accepts(FrameType::operation, sizeof(Descriptor)));
  EXPECT_FALSE(accepts(FrameType::operation, sizeof(Descriptor) + 1));
  EXPECT_TRUE(accepts(FrameType::data, kMaxDataPayload));
  EXPECT_FALSE(accepts(FrameType::data, kMaxDataPayload + 1));
  EXPECT_TRUE(accepts(FrameType::abort, kMaxControlPayload));
  EXPECT_FALSE(accepts(FrameType::abort, kMaxControlPayload + 1));
  EXPECT_FALSE(accepts(FrameType::abort, 0));
  EXPECT_FALSE(accepts(FrameType::pulse, 0));
  EXPECT_FALSE(accepts(FrameType::departures, 0));
  EXPECT_FALSE(accepts(FrameType::departures, kMaxControlPayload + sizeof(Departure)));
  EXPECT_FALSE(accepts(FrameType::departures, sizeof(Departure) + 1));
  EXPECT_TRUE(accepts(FrameType::standings, kMaxControlPayload));
  EXPECT_FALSE(accepts(FrameType::standings, kMaxControlPayload + 8));
  EXPECT_FALSE(accepts(FrameType::standings, 12));
  EXPECT_FALSE(accepts(FrameType::standings, 0));
  EXPECT_TRUE(accepts(FrameType::positions, 0));
  EXPECT_TRUE(
      accepts(FrameType::positions, kMaxControlPayload / sizeof(Position) * sizeof(Position)));
  EXPECT_FALSE(accepts(FrameType::positions, kMaxControlPayload + sizeof(Position)));
  EXPECT_FALSE(accepts(FrameType::positions, 8));
  EXPECT_TRUE(accepts(FrameType::accepted, 0));
  EXPECT_FALSE(accepts(FrameType::accepted, 8));
  EXPECT_TRUE(accepts(FrameType::members, kMaxControlPayload));
  EXPECT_FALSE(accepts(FrameType::members, kMaxControlPayload + 1));
  EXPECT_FALSE(accepts(FrameType::members, 0));
  EXPECT_FALSE(accepts(static_cast<FrameType>(static_cast<int>(kLastFrameType) + 1), 0));
}

TEST(FrameReader, ReadsAsManyStandingsAsFit) {
  for (const std::size_t ranks : {0, 1, 4, 511, 512, 5000}) {
    Standings standings{.group = 77, .begun = std::vector<std::uint64_t>(ranks)};
    for (std::size_t i = 0; i < ranks; ++i) standings.begun[i] = UINT64_MAX - i;
    const Bytes payload = encode(standings);
    Bytes stream;
    append(stream, {.type = FrameType::standings,
                    .generation = 3,
                    .length = static_cast<std::uint32_t>(payload.size())});
    stream.insert(stream.end(), payload.begin(), payload.end());
    FrameReader reader;
    std::span<const std::byte> bytes = stream;
    ASSERT_EQ(reader.next(bytes), FrameReader::Event::frame);
    standings.begun.resize(std::min<std::size_t>(ranks, 511));
    EXPECT_EQ(reader.standings(), standings);
  }
}

TEST(FrameReader, ReadsAsManyPositionsAsFit) {
  for (const std::size_t groups : {0, 1, 16, 170, 171}) {
    std::vector<Position> positions(groups);
    for (std::size_t i = 0; i < groups; ++i) positions[i] = {.group = UINT64_MAX - i, .begun = i};
    const Bytes payload = encode(positions);
    Bytes stream;
    append(stream, {.type = FrameType::positions,
                    .generation = 3,
                    .length = static_cast<std::uint32_t>(payload.size())});
    stream.insert(stream.end(), payload.begin(), payload.end());
    FrameReader reader;
    std::span<const std::byte> bytes = stream;
    ASSERT_EQ(reader.next(bytes), FrameReader::Event::frame);
    positions.resize(std::min<std::size_t>(groups, 170));
    EXPECT_EQ(reader.positions(), positions);
  }
}

TEST(FrameReader, StaysBadAfterGarbage) {
  FrameReader reader;
  const Bytes garbage(100, std::byte{0x5A});
  std::span<const std::byte> bytes = garbage;
  EXPECT_EQ(reader.next(bytes), FrameReader::Event::bad);
  EXPECT_THAT(reader.error().message(), HasSubstr("magic"));
  Bytes good;
  append(good, kData);
  bytes = good;
  EXPECT_EQ(reader.next(bytes), FrameReader::Event::bad);
  EXPECT_EQ(bytes.size(), good.size());
}

TEST(FrameReader, TakesNoMoreThanItsFrame) {
  Bytes stream;
  append(stream, kData);
  stream.push_back(std::byte{1});
  std::span<const std::byte> bytes = stream;
  FrameReader reader;
  EXPECT_EQ(reader.next(bytes), FrameReader::Event::data);
  EXPECT_EQ(bytes.size(), 1U);
}

}  // namespace
}  // namespace lockstep::wire
