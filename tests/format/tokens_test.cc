#include "format/tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "lockstep/error.h"
#include "tests/format/bytes.h"

namespace lockstep::format {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Tokens = std::vector<std::int64_t>;

Tokens all_of(const Bytes& file, TokenType type) {
  const TokenFile tokens(window_of(file), file.size(), type, "t.bin");
  Tokens out(tokens.count());
  tokens.read(0, out);
  return out;
}

TEST(Tokens, EveryTypeIsWidened) {
  const Bytes file = bytes({1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff});
  EXPECT_THAT(all_of(file, TokenType::uint8), ElementsAre(1, 0, 0, 0, 255, 255, 255, 255));
  EXPECT_THAT(all_of(file, TokenType::uint16), ElementsAre(1, 0, 65535, 65535));
  EXPECT_THAT(all_of(file, TokenType::uint32), ElementsAre(1, 4294967295));
  EXPECT_THAT(all_of(file, TokenType::int32), ElementsAre(1, -1));
  EXPECT_THAT(all_of(file, TokenType::int64), ElementsAre(-4294967295));
}

TEST(Tokens, ReadsAtAnyPlace) {
  Bytes file;
  for (int i = 0; i < 100; ++i) file = file + bytes({i, 1});
  const TokenFile tokens(window_of(file), file.size(), TokenType::uint16, "t.bin");
  for (std::uint64_t first = 0; first <= 100; ++first) {
    for (std::uint64_t count = 0; first + count <= 100; ++count) {
      Tokens window(count);
      tokens.read(first, window);
      for (std::uint64_t i = 0; i < count; ++i) {
        ASSERT_EQ(window[i], static_cast<std::int64_t>(256 + first + i));
      }
    }
  }
}

TEST(Tokens, CountsWindows) {
  const Bytes file(10);
  const TokenFile tokens(window_of(file), 10, TokenType::uint8, "t.bin");
  EXPECT_EQ(tokens.count({.length = 3, .stride = 1}), 8U);
  EXPECT_EQ(tokens.count({.length = 3, .stride = 2}), 4U);
  EXPECT_EQ(tokens.count({.length = 3, .stride = 7}), 2U);
  EXPECT_EQ(tokens.count({.length = 10, .stride = 10}), 1U);
  EXPECT_EQ(tokens.count({.length = 11, .stride = 1}), 0U);
  EXPECT_THROW((void)tokens.count({.length = 0, .stride = 1}), InvalidUsage);
  EXPECT_THROW((void)tokens.count({.length = 1, .stride = 0}), InvalidUsage);
}

TEST(Tokens, ARestIsAnError) {
  const Bytes file(7);
  EXPECT_THAT([&] { TokenFile(window_of(file), 7, TokenType::uint16, "t.bin"); },
              ThrowsMessage<DataError>(HasSubstr("t.bin: 7 bytes are 3 tokens of 2 bytes (uint16) "
                                                 "and a rest of 1")));
}

TEST(Tokens, ReadingPastTheEndIsTheCallersFault) {
  const Bytes file(8);
  const TokenFile tokens(window_of(file), 8, TokenType::uint16, "t.bin");
  Tokens two(2);
  EXPECT_THAT(
      [&] { tokens.read(3, two); },
      ThrowsMessage<InvalidUsage>(HasSubstr("tokens 3 to 5 were asked for, the file has 4")));
  EXPECT_THROW(tokens.read(std::numeric_limits<std::uint64_t>::max(), two), InvalidUsage);
}

TEST(Tokens, AFileThatShrankIsNamed) {
  const Bytes file(5);
  const TokenFile tokens(window_of(file), 8, TokenType::uint16, "t.bin");
  Tokens four(4);
  EXPECT_THAT([&] { tokens.read(0, four); },
              ThrowsMessage<DataError>(HasSubstr("t.bin: the file ends at byte 5")));
}

TEST(Tokens, AnEmptyFileHasNone) { EXPECT_TRUE(all_of({}, TokenType::int64).empty()); }

}  // namespace
}  // namespace lockstep::format
