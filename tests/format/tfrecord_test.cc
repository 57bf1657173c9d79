#include "lockstep/tfrecord.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "format/record_frame.h"
#include "lockstep/error.h"
#include "tests/format/files.h"

namespace lockstep {
namespace {

using format::packed;
using format::read_file;
using format::sample_text;
using format::source_of;
using format::write_file;
using testing::ElementsAre;
using testing::HasSubstr;
using Records = std::vector<std::string>;

template <class Array>
std::string text_of(const Array& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A file of these records, as bytes.
std::string framed(const Records& records) {
  std::string bytes;
  for (const std::string& record : records) {
    bytes += text_of(format::record_header(record.size())) + record;
    bytes += text_of(format::record_footer(std::as_bytes(std::span(record))));
  }
  return bytes;
}

Records rest_of(RecordReader& reader) {
  Records records;
  while (const auto record = reader.next()) records.emplace_back(*record);
  return records;
}

Records read_bytes(std::string_view bytes, const RecordReaderOptions& options = {}) {
  RecordReader reader(source_of(bytes, "train"), options);
  return rest_of(reader);
}

std::string failure_of(std::string_view bytes) {
  try {
    read_bytes(bytes);
  } catch (const DataError& error) {
    EXPECT_EQ(error.code(), Code::data_loss);
    return error.what();
  }
  return "";
}

std::string flipped(std::string bytes, std::size_t bit) {
  bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
  return bytes;
}

/// With the lowest bit of that byte changed.
std::string damaged(std::string bytes, std::size_t at) { return flipped(std::move(bytes), 8 * at); }

const Records kThree = {"first", "", std::string("3\0rd", 4)};

// The bytes follow from the definition of the format, with a checksum computed bit by bit.
TEST(RecordWriter, WritesTheBytesTensorFlowReads) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/a";
  RecordWriter writer(path);
  writer.write("lockstep");
  writer.write("");
  writer.close();
  EXPECT_EQ(writer.records(), 2U);
  const unsigned char expected[] = {0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0x86,
                                    0x24, 0x0f, 0x6c, 0x6f, 0x63, 0x6b, 0x73, 0x74, 0x65, 0x70,
                                    0xd7, 0xad, 0xff, 0x72, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                    0x00, 0x00, 0x29, 0x03, 0x98, 0x07, 0xd8, 0xea, 0x82, 0xa2};
  EXPECT_EQ(read_file(path), std::string(std::begin(expected), std::end(expected)));
}

TEST(RecordWriter, AFullDiskIsASystemErrorThatNamesTheFile) {
  for (const Compression compression : {Compression::none, Compression::gzip}) {
    RecordWriter writer("/dev/full", {.compression = compression});
    writer.write("a");
    for (int i = 0; i < 2; ++i) {
      try {
        writer.close();
        ADD_FAILURE() << "no error";
      } catch (const SystemError& error) {
        EXPECT_EQ(error.code(), Code::resource_exhausted);
        EXPECT_THAT(error.what(), HasSubstr("/dev/full"));
      }
    }
  }
}

TEST(RecordWriter, TellsAFullDiskWhileWritingAndAgain) {
  RecordWriter writer("/dev/full");
  const std::string record = sample_text(1'000'000);
  for (int i = 0; i < 2; ++i) EXPECT_THROW(writer.write(record), SystemError);
  EXPECT_EQ(writer.records(), 0U);
}

TEST(RecordWriter, ClosesWithTheObject) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/a";
  { RecordWriter(path).write("a"); }
  EXPECT_EQ(read_file(path), framed({"a"}));
  { RecordWriter("/dev/full").write("a"); }  // silently
}

TEST(RecordWriter, RefusesWrongUse) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/a";
  EXPECT_THROW(RecordWriter(path, {.compression = Compression::automatic}), InvalidUsage);
  EXPECT_THROW(RecordWriter("/nowhere/a"), SystemError);
  RecordWriter writer(path);
  writer.close();
  writer.close();
  EXPECT_THROW(writer.write("late"), InvalidUsage);
}

class RoundTrip : public testing::TestWithParam<Compression> {};

TEST_P(RoundTrip, GivesTheRecordsBack) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/a";
  Records records = kThree;
  for (std::size_t size = 1; size < 3'000'000; size = size * 3 + 1) {
    records.push_back(sample_text(size));
  }
  for (int i = 0; i < 5000; ++i) records.push_back(sample_text(static_cast<std::size_t>(i % 300)));
  RecordWriter writer(path, {.compression = GetParam()});
  for (const std::string& record : records) writer.write(record);
  writer.close();
  for (const Compression read_as : {Compression::automatic, GetParam()}) {
    RecordReader reader(path, {.compression = read_as});
    EXPECT_TRUE(rest_of(reader) == records);
    EXPECT_EQ(reader.position(), records.size());
    EXPECT_EQ(reader.offset(), framed(records).size());
    EXPECT_EQ(reader.next(), std::nullopt);
  }
}

TEST_P(RoundTrip, SkipComesToTheSamePlaceAsReading) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/a";
  Records records;
  for (std::size_t i = 0; i < 40; ++i) records.push_back(sample_text(i * i * 500));
  RecordWriter writer(path, {.compression = GetParam()});
  for (const std::string& record : records) writer.write(record);
  writer.close();
  for (std::size_t count = 0; count <= records.size(); count += 5) {
    RecordReader reader(path);
    reader.next();
    EXPECT_EQ(reader.skip(count), std::min(count, records.size() - 1));
    EXPECT_TRUE(rest_of(reader) == Records(records.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                 count + 1, records.size())),
                                           records.end()));
  }
  EXPECT_EQ(RecordReader(path).skip(1000), records.size());
}

INSTANTIATE_TEST_SUITE_P(Compressions, RoundTrip,
                         testing::Values(Compression::none, Compression::gzip, Compression::zlib));

TEST(RecordReader, AnEmptyFileHasNoRecords) {
  const TemporaryDirectory directory;
  write_file(directory.path() + "/a", "");
  EXPECT_EQ(RecordReader(directory.path() + "/a").next(), std::nullopt);
}

TEST(RecordReader, AMissingFileIsNotFound) {
  try {
    const RecordReader reader("/nowhere/a");
    FAIL() << "no error";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.code(), Code::not_found);
    EXPECT_THAT(error.what(), HasSubstr("/nowhere/a"));
  }
}

TEST(RecordReader, RecordsWhoseLengthReadsAsCompressionArePlain) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/a";
  for (const std::size_t size : {0x088b1f, 0x9c78, 0x0178, 0xda78}) {
    const Records records = {sample_text(size), "next"};
    write_file(path, framed(records));
    RecordReader reader(path);
    EXPECT_TRUE(rest_of(reader) == records);
  }
}

TEST(RecordReader, EveryBitFlipIsFound) {
  const std::string bytes = framed(kThree);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    EXPECT_THAT(failure_of(flipped(bytes, bit)), HasSubstr("is corrupt")) << bit;
  }
}

TEST(RecordReader, EveryBitFlipInACompressedFileIsFoundOrDoesNoHarm) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/a";
  for (const Compression compression : {Compression::gzip, Compression::zlib}) {
    const std::string bytes = packed(framed(kThree), compression);
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      write_file(path, flipped(bytes, bit));
      try {
        RecordReader reader(path, {.compression = compression});
        EXPECT_EQ(rest_of(reader), kThree) << bit;
      } catch (const DataError& error) {
        EXPECT_THAT(error.what(), HasSubstr(path));
      }
    }
  }
}

TEST(RecordReader, EveryTruncationIsFound) {
  const std::string bytes = framed(kThree);
  std::string whole;  // the beginnings that are files of their own
  Records records;
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::string_view part = std::string_view(bytes).substr(0, size);
    if (part == whole) {
      EXPECT_EQ(read_bytes(part), records);
      records.push_back(kThree[records.size()]);
      whole = framed(records);
    } else {
      EXPECT_THAT(failure_of(part), HasSubstr("the file ends before")) << size;
    }
  }
}

TEST(RecordReader, SkipFindsTruncationsToo) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/a";
  const std::string bytes = framed({sample_text(1'000'000)});
  for (const std::size_t size : {std::size_t{5}, std::size_t{500'000}, bytes.size() - 1}) {
    write_file(path, bytes.substr(0, size));
    EXPECT_THROW(RecordReader(path).skip(1), DataError);
  }
}

TEST(RecordReader, AFileCutBetweenRecordsWhileItIsReadIsDataLoss) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/a";
  const Records written(2000, sample_text(1000));
  for (const CorruptRecords on_corrupt : {CorruptRecords::fail, CorruptRecords::skip}) {
    write_file(path, framed(written));
    RecordReader reader(path, {.on_corrupt = on_corrupt});
    EXPECT_TRUE(reader.next());
    std::filesystem::resize_file(path, framed(written).size() / 2);
    std::string failure;
    try {
      while (reader.next()) {
      }
    } catch (const DataError& error) {
      EXPECT_EQ(error.code(), Code::data_loss);
      failure = error.what();
    }
    EXPECT_EQ(reader.position(), 1000U);
    if (on_corrupt == CorruptRecords::fail) {
      EXPECT_THAT(failure, HasSubstr("bytes when it was opened"));
    } else {
      EXPECT_EQ(failure, "");
      EXPECT_EQ(reader.skipped().rests, 1U);
    }
  }
}

TEST(RecordReader, AbsurdLengthsWithAGoodChecksumCostNoMemory) {
  for (const std::uint64_t length : {std::uint64_t{1} << 40, std::uint64_t{1} << 62,
                                     ~std::uint64_t{0} - 15, ~std::uint64_t{0}}) {
    const std::string bytes = framed({"a"}) + text_of(format::record_header(length)) + "data";
    EXPECT_THAT(failure_of(bytes), HasSubstr("record 1 at byte 17 is corrupt: the file ends"));
    RecordReader reader(source_of(bytes));
    EXPECT_THROW(reader.skip(2), DataError);
  }
}

TEST(RecordReader, AnErrorSaysFileRecordByteAndWhatToDoAndStays) {
  const std::string bytes = damaged(framed(kThree), 49);
  RecordReader reader(source_of(bytes, "data/train"));
  EXPECT_EQ(reader.next(), "first");
  EXPECT_EQ(reader.next(), "");
  for (int i = 0; i < 2; ++i) {
    try {
      reader.next();
      FAIL() << "no error";
    } catch (const DataError& error) {
      EXPECT_STREQ(
          error.what(),
          "data/train: record 2 at byte 37 is corrupt: the checksum of its 4 bytes of data "
          "is wrong; restore the file, or skip corrupt records");
    }
  }
}

TEST(RecordReader, AFileOfSomethingElseIsSaidToBeThat) {
  EXPECT_THAT(failure_of("label,image\n1,2\n"), HasSubstr("maybe these are no records"));
}

TEST(RecordReader, UncheckedDataIsGivenAsItIs) {
  const std::string bytes = damaged(framed(kThree), 12);
  EXPECT_THAT(read_bytes(bytes, {.check = false}), ElementsAre("girst", "", kThree[2]));
}

class Skipping : public testing::Test {
 protected:
  Records read(std::string_view bytes, Compression compression = Compression::none) {
    RecordReader reader(format::decompress(source_of(bytes, "train"), compression),
                        {.on_corrupt = CorruptRecords::skip,
                         .on_skip = [this](const std::string& what) { told_.push_back(what); }});
    Records records = rest_of(reader);
    skipped_ = reader.skipped();
    return records;
  }
  Records told_;
  SkippedRecords skipped_;
};

TEST_F(Skipping, PassesOverRecordsWithBadData) {
  const Records four = {"one", "two", "three", "four"};
  std::string bytes = framed(four);
  bytes = damaged(damaged(bytes, 12), 50);
  EXPECT_THAT(read(bytes), ElementsAre("two", "four"));
  EXPECT_EQ(skipped_, (SkippedRecords{.records = 2, .rests = 0}));
  EXPECT_THAT(told_, ElementsAre(HasSubstr("train: record 0 at byte 0"),
                                 HasSubstr("train: record 2 at byte 38")));
}

TEST_F(Skipping, GivesUpTheRestBehindABadLength) {
  const std::string bytes = damaged(framed({"one", "two", "three"}), 19);
  EXPECT_THAT(read(bytes), ElementsAre("one"));
  EXPECT_EQ(skipped_, (SkippedRecords{.records = 0, .rests = 1}));
  EXPECT_THAT(told_, ElementsAre(HasSubstr("the rest of the file is given up")));
}

TEST_F(Skipping, GivesUpTheRestOfACutOffFile) {
  const std::string bytes = framed({"one", "two"});
  for (std::size_t size = 20; size < bytes.size(); ++size) {
    EXPECT_THAT(read(std::string_view(bytes).substr(0, size)), ElementsAre("one"));
    EXPECT_EQ(skipped_, (SkippedRecords{.records = 0, .rests = 1}));
  }
}

TEST_F(Skipping, GivesUpTheRestOfABrokenCompressedFile) {
  const std::string bytes = packed(framed({sample_text(1'000'000), "two"}), Compression::gzip);
  EXPECT_THAT(read(bytes.substr(0, bytes.size() / 2), Compression::gzip), ElementsAre());
  EXPECT_EQ(skipped_, (SkippedRecords{.records = 0, .rests = 1}));
  EXPECT_THAT(told_, ElementsAre(HasSubstr("train ends within its gzip stream")));
}

TEST_F(Skipping, PositionCountsWhatWasPassedOver) {
  const std::string bytes = damaged(framed({"one", "two", "three"}), 12);
  RecordReader reader(source_of(bytes), {.on_corrupt = CorruptRecords::skip});
  EXPECT_EQ(reader.next(), "two");
  EXPECT_EQ(reader.position(), 2U);
  RecordReader again(source_of(bytes), {.on_corrupt = CorruptRecords::skip});
  EXPECT_EQ(again.skip(2), 2U);
  EXPECT_EQ(again.next(), "three");
}

}  // namespace
}  // namespace lockstep
