#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace lockstep {
namespace {

std::uint32_t crc(std::string_view text, std::uint32_t before = 0) {
  return crc32c(std::as_bytes(std::span(text)), before);
}

std::string sample(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 131 + i / 251);
  return text;
}

TEST(Crc32c, HasTheKnownValues) {
  EXPECT_EQ(crc("123456789"), 0xe3069283U);
  EXPECT_EQ(crc(""), 0U);
  EXPECT_EQ(crc(std::string(32, '\0')), 0x8a9136aaU);  // RFC 3720, B.4
  EXPECT_EQ(crc(std::string(32, '\xff')), 0x62a8ab43U);
}

/// Bit by bit.
std::uint32_t slow_crc32c(std::string_view text) {
  std::uint32_t crc = ~std::uint32_t{0};
  for (const char byte : text) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0U);
  }
  return ~crc;
}

TEST(Crc32c, IsTheSameForEveryLengthAndAlignment) {
  const std::string text = sample(2000);
  for (std::size_t size = 0; size < 700; ++size) {
    const std::string_view part = std::string_view(text).substr(size % 9, size);
    EXPECT_EQ(crc(part), slow_crc32c(part)) << size;
  }
}

TEST(Crc32c, IsTheSamePieceByPiece) {
  const std::string text = sample(3000);
  const std::string_view whole = text;
  for (std::size_t piece = 1; piece < 700; piece += 1 + piece / 16) {
    std::uint32_t sum = 0;
    for (std::size_t at = 0; at < whole.size(); at += piece)
      sum = crc(whole.substr(at, piece), sum);
    EXPECT_EQ(sum, crc(whole)) << piece;
    EXPECT_EQ(crc("", sum), sum);
  }
}

}  // namespace
}  // namespace lockstep
