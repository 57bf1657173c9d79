#include "format/lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/error.h"
#include "tests/format/files.h"

namespace lockstep::format {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> lines_of(std::string_view text, LineOptions options = {},
                                  std::size_t piece = 1000) {
  LineReader reader(std::make_unique<Pieces>(source_of(text, "a.txt"), piece), options);
  std::vector<std::string> lines;
  while (const auto line = reader.next()) lines.emplace_back(*line);
  EXPECT_EQ(reader.position(), lines.size());
  return lines;
}

TEST(Lines, EndWithLineFeedOrCarriageReturnAndLineFeed) {
  for (const std::size_t piece : {1, 2, 3, 1000}) {
    EXPECT_THAT(lines_of("a\nb\r\n\n\r\nc d\n", {}, piece), ElementsAre("a", "b", "", "", "c d"));
  }
}

TEST(Lines, TheLastOneNeedsNoEnd) {
  EXPECT_THAT(lines_of("a\nb"), ElementsAre("a", "b"));
  EXPECT_THAT(lines_of("a\n"), ElementsAre("a"));
  EXPECT_THAT(lines_of("\n"), ElementsAre(""));
  EXPECT_THAT(lines_of(""), IsEmpty());
}

TEST(Lines, ACarriageReturnElsewhereIsPartOfTheLine) {
  EXPECT_THAT(lines_of("a\rb\n\r\r\nc\r"), ElementsAre("a\rb", "\r", "c\r"));
}

TEST(Lines, MayBeLongerThanABlock) {
  const std::string text = sample_text(3'000'000);
  EXPECT_TRUE(lines_of(text + "\nshort\n" + text, {}, 70'000) ==
              (std::vector<std::string>{text, "short", text}));
}

TEST(Lines, OfTheFullLengthAreGivenAndLongerOnesRefused) {
  const LineOptions options{.max_bytes = 5};
  EXPECT_THAT(lines_of("12345\n12345\r\n12345", options), ElementsAre("12345", "12345", "12345"));
  for (const char* text :
       {"a\n123456\n", "a\n123456\r\n", "a\n123456", "a\n1234567890", "a\n12345\r"}) {
    try {
      lines_of(text, options, 3);
      ADD_FAILURE() << "no error";
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr("a.txt: line 2 at byte 2 is longer than 5 bytes"));
    }
  }
}

TEST(Lines, OfABinaryFileDoNotFillTheMemory) {
  const std::string zeros(1'000'000, '\0');
  EXPECT_THROW(lines_of(zeros, {.max_bytes = 1000}), DataError);
}

TEST(Lines, ComeFromCompressedFiles) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/a.gz";
  write_file(path, packed("a\nb\n", Compression::gzip));
  LineReader reader(open_file(path));
  EXPECT_EQ(reader.next(), "a");
  EXPECT_EQ(reader.next(), "b");
  EXPECT_EQ(reader.next(), std::nullopt);
}

}  // namespace
}  // namespace lockstep::format
