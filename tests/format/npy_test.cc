#include "format/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "lockstep/error.h"
#include "tests/format/bytes.h"

namespace lockstep::format {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

auto refused_with(const std::string& what) { return ThrowsMessage<DataError>(HasSubstr(what)); }

/// A header of the given version around `text`, not padded.
Bytes with_text(std::string_view dictionary, int version = 1) {
  const int size = static_cast<int>(dictionary.size());
  Bytes out = bytes("\x93NUMPY") + bytes({version, 0, size & 0xff, size >> 8});
  if (version > 1) out = out + bytes({0, 0});
  return out + bytes(dictionary);
}

NpyHeader parsed(std::string_view dictionary, int version = 1) {
  return parse_npy_header(with_text(dictionary, version), "x.npy");
}

std::string with_descr(std::string_view descr) {
  return "{'descr': " + std::string(descr) + ", 'fortran_order': False, 'shape': (2,), }";
}

Bytes read_all(const Bytes& file) { return NpyReader(bytes_of(file), "x.npy").read_rest(); }

Bytes sample() {
  return bytes(encode_npy_header({.type = DType::int16, .shape = {2, 3}})) +
         bytes({1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 1});
}

TEST(Npy, WritesWhatNumpyWrites) {
  const std::string dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
  std::string expected("\x93NUMPY\x01\x00\x76\x00", 10);
  expected += dictionary + std::string(128 - 10 - dictionary.size() - 1, ' ') + "\n";
  EXPECT_EQ(encode_npy_header({.type = DType::float32, .shape = {3}}), expected);
  EXPECT_THAT(encode_npy_header({.type = DType::boolean, .shape = {}}),
              HasSubstr("{'descr': '|b1', 'fortran_order': False, 'shape': (), }"));
  EXPECT_THAT(encode_npy_header({.type = DType::complex128,
                                 .byte_order = ByteOrder::big,
                                 .array_order = ArrayOrder::fortran,
                                 .shape = {2, 0}}),
              HasSubstr("{'descr': '>c16', 'fortran_order': True, 'shape': (2, 0), }"));
}

TEST(Npy, RoundTripOfEveryType) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto type = static_cast<DType>(i);
    if (type == DType::bfloat16) {
      EXPECT_THROW(encode_npy_header({.type = type, .shape = {}}), InvalidUsage);
      continue;
    }
    for (const auto& shape : {std::vector<std::int64_t>{}, {0}, {7}, {2, 3, 4}}) {
      const std::string raw = encode_npy_header({.type = type, .shape = shape});
      EXPECT_EQ(raw.size() % 64, 0U);
      const NpyHeader back = parse_npy_header(bytes(raw), "x.npy");
      EXPECT_EQ(back.type, type);
      EXPECT_EQ(back.shape, shape);
      EXPECT_EQ(back.header_bytes, raw.size());
      EXPECT_EQ(back.array_order, ArrayOrder::c);
    }
  }
}

TEST(Npy, AHeaderTooLongForVersionOneIsVersionTwo) {
  const std::vector<std::int64_t> shape(30'000, 1);
  const std::string raw = encode_npy_header({.type = DType::uint8, .shape = shape});
  EXPECT_EQ(raw[6], 2);
  EXPECT_EQ(raw.size() % 64, 0U);
  EXPECT_EQ(parse_npy_header(bytes(raw), "x.npy").shape, shape);
  EXPECT_THROW(
      encode_npy_header({.type = DType::uint8, .shape = std::vector<std::int64_t>(1 << 19, 1)}),
      InvalidUsage);
  EXPECT_THROW(encode_npy_header({.type = DType::uint8, .shape = {-1}}), InvalidUsage);
}

TEST(Npy, ReadsAllVersionsAndSpellings) {
  for (const int version : {1, 2, 3}) {
    const NpyHeader header =
        parsed("{\"shape\":(3L,4L),'fortran_order':True,  'descr':'>i8'}  \n", version);
    EXPECT_EQ(header.type, DType::int64);
    EXPECT_EQ(header.byte_order, ByteOrder::big);
    EXPECT_EQ(header.array_order, ArrayOrder::fortran);
    EXPECT_THAT(header.shape, ElementsAre(3, 4));
    EXPECT_EQ(header.payload_bytes(), 96U);
  }
  EXPECT_THAT(parsed("{'descr':'=f8','fortran_order':False,'shape':()}").shape, IsEmpty());
}

TEST(Npy, ElementsComeInTheHostsOrder) {
  const Bytes big =
      bytes(encode_npy_header({.type = DType::int32, .byte_order = ByteOrder::big, .shape = {2}})) +
      bytes({0, 0, 1, 2, 0xff, 0xff, 0xff, 0xfe});
  EXPECT_EQ(read_all(big), bytes({2, 1, 0, 0, 0xfe, 0xff, 0xff, 0xff}));
  const Bytes complex =
      bytes(encode_npy_header(
          {.type = DType::complex64, .byte_order = ByteOrder::big, .shape = {1}})) +
      bytes({1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(read_all(complex), bytes({4, 3, 2, 1, 8, 7, 6, 5}));
}

TEST(Npy, ABoolIsZeroOrOne) {
  const Bytes file =
      bytes(encode_npy_header({.type = DType::boolean, .shape = {3}})) + bytes({0, 1, 0xfe});
  EXPECT_EQ(read_all(file), bytes({0, 1, 1}));
}

TEST(Npy, ReadsInPieces) {
  const Bytes file = sample();
  for (std::size_t piece = 1; piece < 20; ++piece) {
    NpyReader reader(in_pieces(file, piece), "x.npy", file.size());
    Bytes some(5);
    EXPECT_EQ(reader.read(some), 4U);
    EXPECT_EQ(some, bytes({1, 0, 2, 0, 0}));
    EXPECT_EQ(reader.bytes_left(), 8U);
    EXPECT_EQ(reader.read_rest(), bytes({3, 0, 4, 0, 5, 0, 6, 1}));
    EXPECT_EQ(reader.read(some), 0U);
  }
  NpyReader reader(bytes_of(file), "x.npy");
  Bytes one(1);
  EXPECT_THROW(reader.read(one), InvalidUsage);
}

TEST(Npy, OneElementWithoutDimensions) {
  const Bytes file = bytes(encode_npy_header({.type = DType::uint8, .shape = {}})) + bytes({9});
  EXPECT_EQ(read_all(file), bytes({9}));
}

TEST(Npy, EveryTruncationIsNamed) {
  const Bytes whole = sample();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THAT([&] { read_all(cut); }, refused_with("x.npy: cut off")) << size;
    EXPECT_THAT([&] { NpyReader(bytes_of(cut), "x.npy", cut.size()); }, refused_with("x.npy: "));
  }
}

TEST(Npy, BytesBehindTheElementsAreAnError) {
  EXPECT_THAT([] { read_all(sample() + bytes({0})); }, refused_with("bytes follow"));
  const Bytes none = bytes(encode_npy_header({.type = DType::uint8, .shape = {0}}));
  EXPECT_THAT(read_all(none), IsEmpty());
  EXPECT_THAT([&] { read_all(none + bytes({1})); }, refused_with("bytes follow"));
}

TEST(Npy, ObjectsAndOtherTypesAreRefusedWithAdvice) {
  EXPECT_THAT([] { parsed(with_descr("'|O'")); }, refused_with("astype('f4')"));
  EXPECT_THAT([] { parsed(with_descr("'<u2'")); }, refused_with("astype('i4')"));
  EXPECT_THAT([] { parsed(with_descr("'<u4'")); }, refused_with("astype('i8')"));
  EXPECT_THAT([] { parsed(with_descr("[('a', '<f4')]")); }, refused_with("several fields"));
  for (const char* descr : {"'<U3'", "'|S4'", "'<M8[ns]'", "'f4'", "''", "'<'", "'|f4'", "'<f3'"}) {
    EXPECT_THAT([&] { parsed(with_descr(descr)); }, refused_with("'descr' is")) << descr;
  }
}

TEST(Npy, WrongHeadersNameTheByte) {
  EXPECT_THAT([] { parsed("['descr']"); }, refused_with("at byte 10: expected {"));
  EXPECT_THAT([] { parsed("{'shape': (2,)}"); }, refused_with("'descr' is absent"));
  EXPECT_THAT([] { parsed("{'shape': (2,), 'shape': (2,)}"); }, refused_with("twice"));
  EXPECT_THAT([] { parsed("{'other': 1}"); }, refused_with("'other' is not known"));
  EXPECT_THAT([] { parsed("{'shape': (-2,)}"); }, refused_with("no number"));
  EXPECT_THAT([] { parsed("{'shape': (99999999999999999999,)}"); }, refused_with("no number"));
  EXPECT_THAT([] { parsed("{'fortran_order': Maybe}"); }, refused_with("neither True nor False"));
  EXPECT_THAT([] { parsed(with_descr("'<f4'") + " x"); }, refused_with("follows the dictionary"));
  EXPECT_THAT([] { parsed(with_descr("'<f4'"), 4); }, refused_with("version 4"));
  EXPECT_THAT([] { read_all(bytes("PK\3\4 not an array")); }, refused_with("no .npy file"));
}

TEST(Npy, AbsurdNumbersCostNothing) {
  EXPECT_THAT([] { parsed("{'shape': (4294967296, 4294967296)}"); }, refused_with("no file holds"));
  EXPECT_THAT([] { parsed("{'shape': (0, 4294967296, 4294967296)}"); },
              refused_with("no file holds"));
  const Bytes long_header = bytes("\x93NUMPY\x02") + bytes({0, 0xff, 0xff, 0xff, 0xff});
  EXPECT_THAT([&] { read_all(long_header); }, refused_with("4294967295 bytes"));
  const Bytes claims =
      bytes(encode_npy_header({.type = DType::uint8, .shape = {std::int64_t{1} << 50}}));
  EXPECT_THAT([&] { read_all(claims); }, refused_with("cut off at byte 128"));
}

TEST(Npy, TurnedBitsNeverDoMoreThanThrow) {
  with_each_bit_turned(sample(), [](const Bytes& turned) {
    try {
      (void)read_all(turned);
    } catch (const DataError&) {
    }
  });
}

}  // namespace
}  // namespace lockstep::format
