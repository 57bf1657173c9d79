// lockstep data over real files.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "lockstep/example.h"
#include "lockstep/tfrecord.h"
#include "tests/sys/temporary_directory.h"
#include "tests/tools/command.h"

namespace lockstep::tool {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;
using Records = std::vector<std::string>;

class Data : public testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const {
    return directory_.path() + "/" + name;
  }

  std::string write(const std::string& name, const Records& records,
                    Compression compression = Compression::none) {
    RecordWriter writer(path(name), {.compression = compression});
    for (const std::string& record : records) writer.write(record);
    writer.close();
    return path(name);
  }

  /// Makes one byte another.
  static void damage(const std::string& file, std::streamoff at) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(at);
    const auto byte = static_cast<char>(stream.get() ^ 1);
    stream.seekp(at);
    stream.put(byte);
    ASSERT_TRUE(stream.flush());
  }

  Records read(const std::string& name) {
    RecordReader reader(path(name));
    Records records;
    while (const auto record = reader.next()) records.emplace_back(*record);
    return records;
  }

  [[nodiscard]] std::size_t files() const {
    const std::filesystem::directory_iterator all(directory_.path());
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }

 private:
  TemporaryDirectory directory_;
};

TEST_F(Data, CountsRecords) {
  const std::string a = write("a", {"1", "2", "3"});
  const std::string b = write("b", Records(2500, "x"), Compression::gzip);
  const Result result = lockstep_command("data count " + a + " " + b);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(lines_of(result.out),
              ElementsAre("           3  " + a, "        2500  " + b, "        2503  total"));
}

TEST_F(Data, CountsTheOtherFilesIfOneIsMissing) {
  const std::string a = write("a", {"1"});
  const Result result = lockstep_command("data count " + path("none") + " " + a);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(lines_of(result.out), ElementsAre("           1  " + a, "           1  total"));
  EXPECT_THAT(lines_of(result.err), ElementsAre(HasSubstr("cannot open " + path("none"))));
}

TEST_F(Data, VerifiesGoodFiles) {
  const std::string a = write("a", {"1", "2"});
  const std::string b = write("b", {"3"}, Compression::zlib);
  const Result result = lockstep_command("data verify " + a + " " + b);
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(lines_of(result.out), ElementsAre(a + ": 2 good records", b + ": 1 good records",
                                                "2 of 2 files are good, 3 good records read"));
}

TEST_F(Data, VerifyStopsAFileAtItsFirstCorruptRecord) {
  const std::string a = write("a", {"1", "2", "3", "4"});  // 17 bytes each
  damage(a, 17 + 12);
  damage(a, 2 * 17 + 12);
  const std::string b = write("b", {"5"});
  const Result result = lockstep_command("data verify " + a + " " + b);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(lines_of(result.out),
              ElementsAre(HasSubstr(a + ": record 1 at byte 17 is corrupt"), b + ": 1 good records",
                          "1 of 2 files are good, 2 good records read"));
}

TEST_F(Data, VerifyReportsEveryCorruptRecordIfAsked) {
  const std::string a = write("a", {"1", "2", "3", "4", "5"});
  damage(a, 12);
  damage(a, 2 * 17 + 12);
  damage(a, 68);  // the length of the fifth record
  const Result result = lockstep_command("data verify --skip-corrupt " + a);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(lines_of(result.out),
              ElementsAre(HasSubstr("record 0 at byte 0 is"), HasSubstr("record 2 at byte 34 is"),
                          HasSubstr("record 4 at byte 68 is"),
                          a + ": 2 good records, 2 corrupt, then the rest is lost",
                          "0 of 1 files are good, 2 good records read"));
}

TEST_F(Data, InspectShowsRecordsAndSizes) {
  const std::string a = write("a", {"text", std::string("\0\1", 2), "more", "last"});
  const Result result = lockstep_command("data inspect -n 2 " + a);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(
      lines_of(result.out),
      ElementsAre(
          a + ": records", "  record 0 at byte 0: 4 bytes, \"text\"",
          "  record 1 at byte 20: 2 bytes, \"\\x00\\x01\"",
          "  4 records, 14 B of data; the smallest has 2 bytes, the largest 4, the mean 3"));
}

TEST_F(Data, InspectListsTheFeaturesOfExamples) {
  Example example;
  example["image"] = std::vector<float>{0.5F, 1, 2, 3, 4, 5};
  example["label"] = std::vector<std::int64_t>{7};
  example["name"] = std::vector<std::string>{"seven"};
  const std::string a = write("a", {encode_example(example)}, Compression::gzip);
  const Result result = lockstep_command("data inspect " + a);
  EXPECT_EQ(result.code, 0) << result.err;
  const Records lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 6U) << result.out;
  EXPECT_THAT(lines[1], HasSubstr("a tf.Example"));
  EXPECT_THAT(lines[2], MatchesRegex("    image +float32 +6 values +0.5, 1, 2, 3, 4, \\.\\.\\."));
  EXPECT_THAT(lines[3], MatchesRegex("    label +int64 +1 value +7"));
  EXPECT_THAT(lines[4], MatchesRegex("    name +bytes +1 value +\"seven\" \\(5 bytes\\)"));
}

TEST_F(Data, InspectTellsTheShapeOfArrays) {
  std::ofstream(path("a"), std::ios::binary).write("\0\0\x08\2\0\0\0\2\0\0\0\1ab", 14);
  const Result result = lockstep_command("data inspect " + path("a"));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, path("a") + ": IDX array of uint8 [2, 1]\n");
}

TEST_F(Data, InspectSaysWhatAFileIsNot) {
  std::ofstream(path("a")) << "label,image\n1,2\n";
  const Result result = lockstep_command("data inspect " + path("a"));
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(lines_of(result.err), ElementsAre(HasSubstr("maybe these are no records")));
}

TEST_F(Data, ShardDealsRecordsRound) {
  const std::string a = write("a", {"1", "2", "3"});
  const std::string b = write("b", {"4", "5"}, Compression::gzip);
  for (const char* compression : {"none", "gzip", "zlib"}) {
    const std::string output = path(std::string("out-") + compression);
    const Result result = lockstep_command(fmt::format(
        "data shard --into 2 --compression {} --output {} {} {}", compression, output, a, b));
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.out, "5 records of 2 files are now in 2 files: " + output + "-*-of-00002\n");
    const std::string name = std::string("out-") + compression;
    EXPECT_THAT(read(name + "-00000-of-00002"), ElementsAre("1", "3", "5"));
    EXPECT_THAT(read(name + "-00001-of-00002"), ElementsAre("2", "4"));
  }
  EXPECT_EQ(files(), 2U + 3 * 2);
}

TEST_F(Data, ShardReplacesNoFile) {
  const std::string a = write("a", {"1"});
  write("out-00001-of-00002", {"old"});
  const Result result = lockstep_command("data shard --into 2 --output " + path("out") + " " + a);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(lines_of(result.err), ElementsAre(HasSubstr("out-00001-of-00002 exists")));
  EXPECT_THAT(read("out-00001-of-00002"), ElementsAre("old"));
  EXPECT_EQ(files(), 2U);
}

TEST_F(Data, ShardOfACorruptFileLeavesNothingOrLeavesTheRecordOut) {
  const std::string a = write("a", {"1", "2", "3"});
  damage(a, 17 + 12);
  const std::string arguments = "--into 1 --output " + path("out") + " " + a;
  const Result stopped = lockstep_command("data shard " + arguments);
  EXPECT_EQ(stopped.code, 1);
  EXPECT_THAT(lines_of(stopped.err), ElementsAre(HasSubstr("record 1 at byte 17 is corrupt")));
  EXPECT_EQ(files(), 1U);
  const Result skipped = lockstep_command("data shard --skip-corrupt " + arguments);
  EXPECT_EQ(skipped.code, 0) << skipped.err;
  EXPECT_THAT(lines_of(skipped.err), ElementsAre(HasSubstr("record 1 at byte 17 is corrupt")));
  EXPECT_THAT(read("out-00000-of-00001"), ElementsAre("1", "3"));
}

}  // namespace
}  // namespace lockstep::tool
