#include "format/zip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <charconv>
#include <cstring>

#include "format/npy.h"
#include "lockstep/error.h"
#include "tests/format/bytes.h"

namespace lockstep::format {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

auto refused_with(const std::string& what) { return ThrowsMessage<DataError>(HasSubstr(what)); }

/// Written by Python's zipfile the way numpy.savez does: "s" stored, "d" deflated.
Bytes from_python() {
  constexpr std::string_view hex =
      "504b03042d000000000000002100cbaf5c71ffffffffffffffff010014007301"
      "0010000b000000000000000b00000000000000706c61696e206279746573504b"
      "03042d0000000800000021002c2ff45dffffffffffffffff0100140064010010"
      "00640000000000000007000000000000004b4c4aa4390400504b01022d032d00"
      "0000000000002100cbaf5c710b0000000b000000010000000000000000000000"
      "80010000000073504b01022d032d0000000800000021002c2ff45d0700000064"
      "00000001000000000000000000000080013e00000064504b0506000000000200"
      "02005e000000780000000000";
  Bytes out;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    int value = 0;
    std::from_chars(hex.data() + i, hex.data() + i + 2, value, 16);
    out.push_back(static_cast<std::byte>(value));
  }
  return out;
}

ZipReader archive_of(const Bytes& file) { return {window_of(file), file.size(), "a.npz"}; }

Bytes content(const ZipReader& archive, const ZipMember& member, std::size_t piece = 1000) {
  const ReadBytes read = archive.open(member);
  Bytes out;
  Bytes some(piece);
  while (const std::size_t came = read(some)) {
    out.insert(out.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(came));
  }
  return out;
}

void read_all(const Bytes& file) {
  const ZipReader archive = archive_of(file);
  for (const ZipMember& member : archive.members()) (void)content(archive, member);
}

template <class T>
Bytes number(T value) {
  Bytes out(sizeof(T));
  std::memcpy(out.data(), &value, sizeof(T));
  return out;
}

/// What the directory of a small archive claims; the defaults are right.
struct Claims {
  std::uint32_t bytes = 5;
  std::uint32_t packed = 5;
  std::uint16_t method = 0;
  std::uint16_t flags = 0;
  std::uint32_t header_at = 0;
  Bytes extra{};
  std::uint16_t entries = 1;
  std::uint32_t directory_at = 36;  // behind a header of 30, a name of 1 and 5 bytes
  Bytes before_end{};
  std::string comment{};
};

/// An archive with the stored member "m", which holds "hello".
Bytes with_claims(const Claims& claims) {
  const std::uint32_t crc = 0x3610a686;
  const auto u16 = [](std::size_t value) { return number(static_cast<std::uint16_t>(value)); };
  Bytes file = bytes("PK\3\4") + Bytes(22) + u16(1) + u16(0) + bytes("mhello");
  const Bytes entry = bytes("PK\1\2") + Bytes(4) + u16(claims.flags) + u16(claims.method) +
                      Bytes(4) + number(crc) + number(claims.packed) + number(claims.bytes) +
                      u16(1) + u16(claims.extra.size()) + Bytes(10) + number(claims.header_at) +
                      bytes("m") + claims.extra;
  file = file + entry + claims.before_end;
  return file + bytes("PK\5\6") + Bytes(4) + u16(claims.entries) + u16(claims.entries) +
         number(static_cast<std::uint32_t>(entry.size())) + number(claims.directory_at) +
         u16(claims.comment.size()) + bytes(claims.comment);
}

TEST(Zip, ReadsWhatPythonWrites) {
  const Bytes file = from_python();
  const ZipReader archive = archive_of(file);
  ASSERT_EQ(archive.members().size(), 2U);
  std::string abab;
  for (int i = 0; i < 50; ++i) abab += "ab";
  for (std::size_t piece = 1; piece < 120; ++piece) {
    EXPECT_EQ(content(archive, archive.members()[0], piece), bytes("plain bytes"));
    EXPECT_EQ(content(archive, archive.members()[1], piece), bytes(abab));
  }
  ASSERT_NE(archive.find("d"), nullptr);
  EXPECT_EQ(archive.find("d")->bytes, 100U);
  EXPECT_EQ(archive.name_of(*archive.find("d")), "a.npz:d");
  EXPECT_EQ(archive.find("e"), nullptr);
}

TEST(Zip, AnArchiveWithNothingInIt) {
  const Bytes empty = bytes("PK\5\6") + Bytes(18);
  EXPECT_THAT(archive_of(empty).members(), IsEmpty());
}

TEST(Zip, ACommentMayFollow) {
  const Bytes file = with_claims({.comment = "PK\5\6 is how the end begins"});
  const ZipReader archive = archive_of(file);
  EXPECT_EQ(content(archive, *archive.find("m")), bytes("hello"));
}

TEST(Zip, ReadsNumbersOf64Bits) {
  const Bytes extra = bytes({9, 9, 1, 0, 7}) + bytes({1, 0, 24, 0}) + number(std::uint64_t{5}) +
                      number(std::uint64_t{5}) + number(std::uint64_t{0});
  const Bytes end64 = bytes("PK\6\6") + Bytes(28) + number(std::uint64_t{1}) +
                      number(std::uint64_t{46 + 1 + 33}) + number(std::uint64_t{36});
  const Bytes locator =
      bytes("PK\6\7") + Bytes(4) + number(std::uint64_t{36 + 46 + 1 + 33}) + Bytes(4);
  const Bytes file = with_claims({.bytes = 0xffffffff,
                                  .packed = 0xffffffff,
                                  .header_at = 0xffffffff,
                                  .extra = extra,
                                  .entries = 0xffff,
                                  .directory_at = 0xffffffff,
                                  .before_end = end64 + locator});
  const ZipReader archive = archive_of(file);
  ASSERT_EQ(archive.members().size(), 1U);
  EXPECT_EQ(content(archive, archive.members()[0]), bytes("hello"));
}

TEST(Zip, AMemberIsAnArray) {
  const Bytes array =
      bytes(encode_npy_header({.type = DType::uint8, .shape = {3}})) + bytes({1, 2, 3});
  uLongf packed_size = compressBound(array.size());
  Bytes packed(packed_size);
  ASSERT_EQ(compress(reinterpret_cast<Bytef*>(packed.data()), &packed_size,
                     reinterpret_cast<const Bytef*>(array.data()), array.size()),
            Z_OK);
  // zlib's own header of 2 bytes and trailer of 4 are not in a zip.
  packed = Bytes(packed.begin() + 2, packed.begin() + static_cast<std::ptrdiff_t>(packed_size) - 4);
  const auto crc = static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(array.data()), array.size()));
  const ZipMember member{.name = "x.npy",
                         .bytes = array.size(),
                         .packed_bytes = packed.size(),
                         .header_at = 0,
                         .crc = crc,
                         .method = 8};
  // A directory follows so that the file is an archive; the member is not taken from it.
  const Bytes file = bytes("PK\3\4") + Bytes(26) + packed + bytes("PK\5\6") + Bytes(18);
  const ZipReader archive = archive_of(file);
  NpyReader reader(archive.open(member), archive.name_of(member), member.bytes);
  EXPECT_EQ(reader.read_rest(), bytes({1, 2, 3}));
}

TEST(Zip, ADamagedMemberIsFoundByItsCrc) {
  Bytes file = with_claims({});
  file[31] ^= std::byte{1};
  EXPECT_THAT([&] { read_all(file); }, refused_with("a.npz:m: damaged: the CRC-32 of its 5 bytes"));
}

TEST(Zip, TheDirectoryMustBeTrue) {
  EXPECT_THAT([] { read_all(with_claims({.bytes = 6})); }, refused_with("6"));
  EXPECT_THAT([] { read_all(with_claims({.bytes = 4, .packed = 4})); }, refused_with("CRC-32"));
  EXPECT_THAT([] { read_all(with_claims({.bytes = 0xfffffff0, .packed = 0xfffffff0})); },
              refused_with("do not lie in"));
  EXPECT_THAT([] { read_all(with_claims({.bytes = 5, .packed = 5, .method = 8})); },
              refused_with("a.npz:m: "));
  EXPECT_THAT([] { read_all(with_claims({.method = 12})); }, refused_with("method 12"));
  EXPECT_THAT([] { read_all(with_claims({.flags = 1})); }, refused_with("encrypted"));
  EXPECT_THAT([] { read_all(with_claims({.header_at = 2})); }, refused_with("no member at byte 2"));
  EXPECT_THAT([] { read_all(with_claims({.header_at = 1U << 30})); }, refused_with("does not lie"));
  EXPECT_THAT([] { read_all(with_claims({.entries = 2})); }, refused_with("number 2 of 2"));
  EXPECT_THAT([] { read_all(with_claims({.directory_at = 1U << 30})); },
              refused_with("does not lie"));
  EXPECT_THAT(
      [] {
        read_all(with_claims({.bytes = 0xffffffff, .extra = bytes({1, 0, 0, 0})}));
      },
      refused_with("cut off"));
}

TEST(Zip, AMemberNeverGivesMoreThanItsSize) {
  const Bytes file = from_python();
  const ZipReader archive = archive_of(file);
  ZipMember member = *archive.find("d");
  member.bytes = 99;
  EXPECT_THAT([&] { (void)content(archive, member); }, refused_with("more than the 99 bytes"));
  member.bytes = 101;
  EXPECT_THAT([&] { (void)content(archive, member); }, refused_with("unpacks to 100 bytes"));
  member.bytes = 100;
  member.packed_bytes = 6;
  EXPECT_THAT([&] { (void)content(archive, member); }, refused_with("end within the data"));
}

TEST(Zip, EveryTruncationIsNamed) {
  const Bytes whole = from_python();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THAT([&] { read_all(cut); }, refused_with("no zip archive")) << size;
  }
}

TEST(Zip, TurnedBitsNeverDoMoreThanThrow) {
  with_each_bit_turned(from_python(), [](const Bytes& turned) {
    try {
      read_all(turned);
    } catch (const DataError&) {
    }
  });
}

}  // namespace
}  // namespace lockstep::format
