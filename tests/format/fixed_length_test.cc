#include "format/fixed_length.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/error.h"
#include "tests/format/files.h"

namespace lockstep::format {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> records_of(std::string_view text, FixedLengthOptions options,
                                    std::size_t piece = 1000) {
  FixedLengthReader reader(std::make_unique<Pieces>(source_of(text, "a.bin"), piece), options);
  std::vector<std::string> records;
  while (const auto record = reader.next()) records.emplace_back(*record);
  return records;
}

std::string failure_of(std::string_view text, FixedLengthOptions options) {
  try {
    records_of(text, options);
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

TEST(FixedLength, GivesRecordsBetweenHeaderAndFooter) {
  for (const std::size_t piece : {1, 2, 5, 1000}) {
    EXPECT_THAT(records_of("aabbcc", {.record_bytes = 2}, piece), ElementsAre("aa", "bb", "cc"));
    EXPECT_THAT(
        records_of("headaabbft", {.header_bytes = 4, .record_bytes = 2, .footer_bytes = 2}, piece),
        ElementsAre("aa", "bb"));
    EXPECT_THAT(records_of("aabbfooter", {.record_bytes = 2, .footer_bytes = 6}, piece),
                ElementsAre("aa", "bb"));
  }
}

TEST(FixedLength, AFileMayHaveNoRecords) {
  EXPECT_THAT(records_of("", {.record_bytes = 2}), IsEmpty());
  EXPECT_THAT(records_of("hf", {.header_bytes = 1, .record_bytes = 2, .footer_bytes = 1}),
              IsEmpty());
}

TEST(FixedLength, ARestThatIsNoRecordIsAnErrorWithTheSizes) {
  EXPECT_THAT(failure_of("haabbc", {.header_bytes = 1, .record_bytes = 2}),
              HasSubstr("a.bin has 6 bytes, which is not a header of 1, whole records of 2 and a "
                        "footer of 0: after 2 records 1 bytes are left"));
  EXPECT_THAT(failure_of("aa", {.record_bytes = 2, .footer_bytes = 1}),
              HasSubstr("after 0 records"));
  EXPECT_THAT(failure_of("h", {.header_bytes = 2, .record_bytes = 2}),
              HasSubstr("a.bin has 1 bytes, fewer than its header of 2"));
}

TEST(FixedLength, EverySizeIsWholeOrAnError) {
  const std::string text = sample_text(60);
  for (std::size_t size = 0; size <= text.size(); ++size) {
    const bool whole = size >= 3 + 4 && (size - 3 - 4) % 5 == 0;
    EXPECT_EQ(
        failure_of(text.substr(0, size), {.header_bytes = 3, .record_bytes = 5, .footer_bytes = 4})
            .empty(),
        whole)
        << size;
  }
}

TEST(FixedLength, SkipsRecords) {
  const std::string text = "aabbccdd";
  FixedLengthReader reader(source_of(text), {.record_bytes = 2});
  EXPECT_EQ(reader.skip(2), 2U);
  EXPECT_EQ(reader.next(), "cc");
  EXPECT_EQ(reader.skip(5), 1U);
  EXPECT_EQ(reader.position(), 4U);
}

TEST(FixedLength, RecordsMayBeLargerThanABlock) {
  const std::string text = sample_text(3'000'000);
  EXPECT_TRUE(records_of(text, {.record_bytes = 1'500'000}, 70'000) ==
              (std::vector{text.substr(0, 1'500'000), text.substr(1'500'000)}));
}

TEST(FixedLength, RefusesSizesThatMakeNoSense) {
  constexpr std::size_t kHuge = ~std::size_t{0};
  EXPECT_THROW(records_of("a", {.record_bytes = 0}), InvalidUsage);
  EXPECT_THROW(records_of("a", {.record_bytes = kHuge}), InvalidUsage);
  EXPECT_THROW(records_of("a", {.record_bytes = 1, .footer_bytes = kHuge}), InvalidUsage);
  EXPECT_THROW(records_of("a", {.record_bytes = std::size_t{1} << 50}), DataError);
}

}  // namespace
}  // namespace lockstep::format
