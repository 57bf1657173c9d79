#include "format/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "lockstep/error.h"
#include "tests/format/bytes.h"

namespace lockstep::format {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// Three items of two uint8s.
Bytes sample() { return bytes({0, 0, 8, 2, 0, 0, 0, 3, 0, 0, 0, 2, 1, 2, 3, 4, 5, 6}); }

auto refused_with(const std::string& what) { return ThrowsMessage<DataError>(HasSubstr(what)); }

void read_all(const Bytes& file) {
  IdxReader reader(bytes_of(file), "f");
  (void)reader.read_rest();
}

TEST(Idx, ReadsHeaderAndItems) {
  const Bytes file = sample();
  IdxReader reader(bytes_of(file), "f", file.size());
  EXPECT_EQ(reader.header().type, DType::uint8);
  EXPECT_THAT(reader.header().shape, ElementsAre(3, 2));
  EXPECT_EQ(reader.header().item_bytes(), 2U);
  Bytes two(5);  // holds two whole items
  EXPECT_EQ(reader.read(two), 2U);
  EXPECT_EQ(two, bytes({1, 2, 3, 4, 0}));
  EXPECT_EQ(reader.items_left(), 1U);
  EXPECT_EQ(reader.read(two), 1U);
  EXPECT_EQ(two, bytes({5, 6, 3, 4, 0}));
  EXPECT_EQ(reader.read(two), 0U);
}

TEST(Idx, ReadsStreamsInPiecesOfAnySize) {
  const Bytes file = sample();
  for (std::size_t piece = 1; piece <= file.size(); ++piece) {
    IdxReader reader(in_pieces(file, piece), "f");
    EXPECT_EQ(reader.read_rest(), bytes({1, 2, 3, 4, 5, 6}));
  }
}

template <class T>
T only_element(int code, std::initializer_list<int> big_endian) {
  const Bytes file = bytes({0, 0, code, 1, 0, 0, 0, 1}) + bytes(big_endian);
  IdxReader reader(bytes_of(file), "f", file.size());
  EXPECT_EQ(reader.header().type, dtype_of<T>);
  const Bytes raw = reader.read_rest();
  T value{};
  EXPECT_EQ(raw.size(), sizeof(T));
  std::memcpy(&value, raw.data(), std::min(raw.size(), sizeof(T)));
  return value;
}

TEST(Idx, ReadsAllSixElementTypes) {
  EXPECT_EQ(only_element<std::uint8_t>(0x08, {0xff}), 255);
  EXPECT_EQ(only_element<std::int8_t>(0x09, {0xff}), -1);
  EXPECT_EQ(only_element<std::int16_t>(0x0B, {0x01, 0x02}), 258);
  EXPECT_EQ(only_element<std::int32_t>(0x0C, {0xff, 0xff, 0xff, 0xfe}), -2);
  EXPECT_EQ(only_element<float>(0x0D, {0x3f, 0xc0, 0, 0}), 1.5F);
  EXPECT_EQ(only_element<double>(0x0E, {0xc0, 0x04, 0, 0, 0, 0, 0, 0}), -2.5);
}

TEST(Idx, HeaderSurvivesARoundTrip) {
  const IdxHeader header{.type = DType::float64, .shape = {0xffffffff, 1, 0}};
  const Bytes raw = encode_idx_header(header);
  EXPECT_EQ(raw, bytes({0, 0, 0x0E, 3, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 0}));
  const IdxHeader back = parse_idx_header(raw, "f");
  EXPECT_EQ(back.type, header.type);
  EXPECT_EQ(back.shape, header.shape);
  EXPECT_THROW(encode_idx_header({.type = DType::int64, .shape = {1}}), InvalidUsage);
  EXPECT_THROW(encode_idx_header({.type = DType::uint8, .shape = {}}), InvalidUsage);
  EXPECT_THROW(encode_idx_header({.type = DType::uint8, .shape = {std::int64_t{1} << 32}}),
               InvalidUsage);
}

TEST(Idx, EveryTruncationIsNamed) {
  const Bytes whole = sample();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THAT([&] { read_all(cut); }, refused_with("f: ")) << size;
    EXPECT_THAT([&] { IdxReader(bytes_of(cut), "f", cut.size()); }, refused_with("f: ")) << size;
  }
  const Bytes cut(whole.begin(), whole.end() - 2);
  EXPECT_THAT([&] { read_all(cut); }, refused_with("cut off at byte 16"));
  EXPECT_THAT([&] { read_all(cut); }, refused_with("uint8 [3, 2], 18 bytes in all"));
}

TEST(Idx, BytesBehindTheLastItemAreAnError) {
  const Bytes longer = sample() + bytes({7});
  EXPECT_THAT([&] { read_all(longer); }, refused_with("bytes follow"));
  EXPECT_THAT([&] { IdxReader(bytes_of(longer), "f", longer.size()); }, refused_with("has 19"));
  const Bytes empty_but = bytes({0, 0, 8, 1, 0, 0, 0, 0, 9});
  EXPECT_THAT([&] { IdxReader(bytes_of(empty_but), "f"); }, refused_with("bytes follow"));
}

TEST(Idx, WrongHeadersNameWhatIsWrong) {
  EXPECT_THAT(
      [] {
        parse_idx_header(bytes({1, 0, 8, 1, 0, 0, 0, 0}), "f");
      },
      refused_with("begins with 01 00"));
  EXPECT_THAT(
      [] {
        parse_idx_header(bytes({0x1f, 0x8b, 8, 1, 0, 0, 0, 0}), "f");
      },
      refused_with("gzip"));
  EXPECT_THAT(
      [] {
        parse_idx_header(bytes({0, 0, 0x0A, 1, 0, 0, 0, 0}), "f");
      },
      refused_with("element type 0x0a"));
  EXPECT_THAT([] { parse_idx_header(bytes({0, 0, 8, 0}), "f"); }, refused_with("no dimension"));
}

TEST(Idx, AbsurdDimensionsCostNothing) {
  Bytes three = bytes({0, 0, 8, 3});
  for (int i = 0; i < 3; ++i) three = three + bytes({0xff, 0xff, 0xff, 0xff});
  EXPECT_THAT([&] { read_all(three); }, refused_with("no file holds"));
  // A zero dimension does not make the others plausible.
  const Bytes hidden = three + bytes({0, 0, 0, 0});
  Bytes four = hidden;
  four[3] = std::byte{4};
  EXPECT_THAT([&] { read_all(four); }, refused_with("no file holds"));
  // Plausible by itself, but the file does not hold it: memory grows with what arrives.
  const Bytes large = bytes({0, 0, 8, 2, 0xff, 0xff, 0xff, 0xff, 0x70, 0, 0, 0, 1, 2, 3});
  EXPECT_THAT([&] { read_all(large); }, refused_with("cut off at byte 15"));
}

TEST(Idx, ItemsWithoutElementsAreReadAtOnce) {
  const Bytes file = bytes({0, 0, 8, 2, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0});
  IdxReader reader(bytes_of(file), "f", file.size());
  EXPECT_EQ(reader.read({}), 0xffffffffU);
  EXPECT_EQ(reader.read({}), 0U);
}

TEST(Idx, TooLittleMemoryIsTheCallersFault) {
  const Bytes file = sample();
  IdxReader reader(bytes_of(file), "f");
  Bytes one(1);
  EXPECT_THROW(reader.read(one), InvalidUsage);
}

TEST(Idx, TurnedBitsNeverDoMoreThanThrow) {
  with_each_bit_turned(sample(), [](const Bytes& turned) {
    try {
      read_all(turned);
    } catch (const DataError&) {
    }
  });
}

}  // namespace
}  // namespace lockstep::format
