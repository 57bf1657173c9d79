#include "lockstep/readers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <mutex>

#include "base/log.h"
#include "tests/input/files_to_read.h"
#include "tests/input/helpers.h"

namespace lockstep {
namespace {

using data::fixed_length_records;
using data::text_lines;
using data::tfrecord;
using format::packed;
using format::read_file;
using format::write_file;
using testing::count;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

using Readers = testing::FilesToRead;
using testing::Texts;

Texts texts_of(const Dataset<std::string>& dataset) {
  Texts all;
  for (const std::string& text : dataset) all.push_back(text);
  return all;
}

/// Everything an iteration gives; "!" and the message for an error.
template <class E>
Texts outcomes_of(DatasetIterator<std::string> iterator) {
  Texts all;
  for (;;) {
    try {
      auto next = iterator.next();
      if (!next) return all;
      all.push_back(*next);
    } catch (const E& error) {
      all.push_back(std::string("!") + error.what());
    }
  }
}

/// Collects warnings as long as it lives.
class Warnings {
 public:
  Warnings() {
    set_log_sink([this](LogLevel level, std::string_view text) {
      const std::lock_guard lock(mutex_);
      if (level == LogLevel::warning) texts_.emplace_back(text);
    });
  }
  ~Warnings() { set_log_sink({}); }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;
  Texts texts() {
    flush_log();
    const std::lock_guard lock(mutex_);
    return texts_;
  }

 private:
  std::mutex mutex_;
  Texts texts_;
};

// --- Names of files. ----------------------------------------------------------------------------

TEST_F(Readers, FilesAreSortedAndNamedOnce) {
  for (const char* name : {"b.txt", "a.txt", "c.txt", "other"}) write(name, name);
  EXPECT_THAT(texts_of(data::files(path("*.txt"))),
              ElementsAre(path("a.txt"), path("b.txt"), path("c.txt")));
  EXPECT_THAT(texts_of(data::files({path("[bc].txt"), path("b.txt"), path("a.txt")})),
              ElementsAre(path("a.txt"), path("b.txt"), path("c.txt")));
  EXPECT_EQ(data::files(path("*.txt")).cardinality(), 3);
  EXPECT_EQ(data::files(path("*.txt")).explain(), "files(3: a.txt to c.txt)\n");
}

TEST_F(Readers, APatternThatMatchesNothingIsNamedAtOnce) {
  for (const auto& make : std::vector<std::function<void()>>{[&] { data::files(path("x-*")); },
                                                             [&] { tfrecord(path("x-*")); },
                                                             [&] { text_lines(path("x-*")); }}) {
    EXPECT_THAT(error_of<SystemError>(make), HasSubstr(path("x-*")));
  }
}

TEST_F(Readers, ASeedGivesFilesInAnotherOrderEachTime) {
  Texts sorted;
  for (int i = 10; i < 30; ++i) sorted.push_back(write("f" + std::to_string(i), ""));
  const auto names = data::files(path("f*"), Seed{1});
  const Texts first = texts_of(names);
  const Texts second = texts_of(names);
  EXPECT_NE(first, sorted);
  EXPECT_NE(first, second);
  EXPECT_THAT(first, ::testing::UnorderedElementsAreArray(sorted));
  EXPECT_EQ(texts_of(data::files(path("f*"), Seed{1})), first);
}

// --- Lines and records. -------------------------------------------------------------------------

TEST_F(Readers, LinesOfSeveralFilesOneAfterTheOther) {
  write("a", "one\ntwo\r\n");
  write("b", "");
  write("c", packed("three\n\nfour", Compression::gzip));
  const auto lines = text_lines(path("?"));
  EXPECT_THAT(texts_of(lines), ElementsAre("one", "two", "three", "", "four"));
  EXPECT_EQ(lines.cardinality(), kUnknownCardinality);
  EXPECT_EQ(lines.explain(), "text_lines\nfiles(3: a to c)\n");
  EXPECT_THAT(texts_of(text_lines({path("c"), path("a")})),
              ElementsAre("three", "", "four", "one", "two"));
  EXPECT_THAT(texts_of(text_lines(data::files(path("?")).skip(2))),
              ElementsAre("three", "", "four"));
  EXPECT_EQ(text_lines(Texts()).cardinality(), 0);
  EXPECT_THAT(texts_of(text_lines(Texts())), ElementsAre());
}

TEST_F(Readers, ALineThatIsTooLongEndsItsFile) {
  write("a", "one\n" + std::string(100, 'x') + "\nlost\n");
  write("b", "two\n");
  const Texts all = outcomes_of<DataError>(text_lines(path("?"), {.max_line_bytes = 50}).iterate());
  EXPECT_THAT(all, ElementsAre("one", HasSubstr(path("a") + ": line 2 at byte 4"), "two"));
}

TEST_F(Readers, RecordsOfPlainAndPackedFiles) {
  write_records("a", {"one", ""});
  write_records("b", {});
  write_records("c", {"two"}, Compression::gzip);
  write_records("d", {"three"}, Compression::zlib);
  EXPECT_THAT(texts_of(tfrecord(path("?"))), ElementsAre("one", "", "two", "three"));
  EXPECT_THAT(texts_of(tfrecord(path("?")).prefetch(2)), ElementsAre("one", "", "two", "three"));
  EXPECT_THAT(texts_of(tfrecord(path("c"), {.compression = Compression::gzip})),
              ElementsAre("two"));
  EXPECT_THAT(error_of<DataError>(
                  [&] { texts_of(tfrecord(path("c"), {.compression = Compression::none})); }),
              HasSubstr(path("c")));
}

TEST_F(Readers, RecordsOfOneLength) {
  write("a", "HEADaabbccF");
  write("b", "HEADF");
  write("c", packed("HEADddF", Compression::gzip));
  const data::FixedLengthOptions sizes{.record_bytes = 2, .header_bytes = 4, .footer_bytes = 1};
  EXPECT_THAT(texts_of(fixed_length_records({path("a"), path("b")}, sizes)),
              ElementsAre("aa", "bb", "cc"));
  auto with_gzip = sizes;
  with_gzip.compression = Compression::gzip;
  EXPECT_THAT(texts_of(fixed_length_records(path("c"), with_gzip)), ElementsAre("dd"));
  EXPECT_EQ(fixed_length_records({path("a"), path("b")}, sizes).cardinality(), 3);
  EXPECT_EQ(fixed_length_records(path("c"), with_gzip).cardinality(), kUnknownCardinality);
  EXPECT_THROW(fixed_length_records(path("a"), {}), InvalidUsage);

  write("a", "HEADaabbcF");  // one byte is missing
  EXPECT_THAT(outcomes_of<DataError>(
                  fixed_length_records({path("a"), path("b"), path("a")}, sizes).iterate()),
              ElementsAre("aa", "bb", HasSubstr("after 2 records 2 bytes are left"), "aa", "bb",
                          HasSubstr(path("a"))));
}

// --- Errors. ------------------------------------------------------------------------------------

TEST_F(Readers, AFileIsOpenedWhenItIsReached) {
  write_records("a", {"one", "two"});
  write_records("c", {"three"});
  const auto records = tfrecord({path("a"), path("missing"), path("c")});
  auto iterator = records.iterate();
  EXPECT_EQ(iterator.next(), "one");
  EXPECT_EQ(iterator.next(), "two");
  EXPECT_THAT(error_of<SystemError>([&] { iterator.next(); }), HasSubstr(path("missing")));
  EXPECT_EQ(iterator.next(), "three");
  EXPECT_EQ(iterator.next(), std::nullopt);
  EXPECT_THAT(texts_of(records.take(2)), ElementsAre("one", "two"));
  // The same with a thread in between.
  EXPECT_THAT(outcomes_of<SystemError>(records.prefetch(2).iterate()),
              ElementsAre("one", "two", HasSubstr(path("missing")), "three"));
}

TEST_F(Readers, ADirectoryIsNoFile) {
  std::filesystem::create_directory(path("d"));
  write("e", "line\n");
  EXPECT_THAT(outcomes_of<SystemError>(text_lines({path("d"), path("e")}).iterate()),
              ElementsAre(HasSubstr(path("d")), "line"));
}

TEST_F(Readers, ACorruptRecordFailsAtItsPlace) {
  const std::string a = write_records("a", {"r0", "r1", "r2", "r3"});
  write_records("b", {"r4"});
  damage(a, 1, 2);
  damage(a, 2, 2);
  EXPECT_THAT(outcomes_of<DataError>(tfrecord(path("?")).iterate()),
              ElementsAre("r0", HasSubstr(a + ": record 1 at byte 18 is corrupt"),
                          HasSubstr("record 2 at byte 36"), "r3", "r4"));
  EXPECT_THAT(texts_of(tfrecord(a, {.check = false})), ::testing::SizeIs(4));
}

TEST_F(Readers, AFileThatIsCutOffIsFollowedByTheNext) {
  for (const Compression compression : {Compression::none, Compression::gzip}) {
    const std::string a = write_records("a", {"r0", std::string(3000, 'x')}, compression);
    write_records("b", {"r2"});
    const std::string content = read_file(a);
    write_file(a, content.substr(0, content.size() - 10));
    EXPECT_THAT(outcomes_of<DataError>(tfrecord(path("?")).iterate()),
                ElementsAre("r0", HasSubstr(a), "r2"));
  }
}

TEST_F(Readers, CorruptRecordsAreLeftOutCountedAndLoggedOnceAFile) {
  const std::string a = write_records("a", {"r0", "r1", "r2", "r3"});
  const std::string b = write_records("b", {"r4", "r5"});
  write_records("c", {"r6"});
  damage(a, 1, 2);
  damage(a, 3, 2);
  write_file(b, read_file(b).substr(0, 30));
  const auto report = std::make_shared<data::ReadReport>();
  const auto records = tfrecord(path("?"), {.on_corrupt = CorruptRecords::skip, .report = report});
  Warnings warnings;
  EXPECT_THAT(texts_of(records), ElementsAre("r0", "r2", "r4", "r6"));
  EXPECT_EQ(report->corrupt_records, 2u);
  EXPECT_EQ(report->files_given_up, 1u);
  EXPECT_THAT(warnings.texts(),
              ElementsAre(::testing::AllOf(HasSubstr(a + ": 2 corrupt records"),
                                           HasSubstr("the first: " + a + ": record 1")),
                          ::testing::AllOf(HasSubstr(b), HasSubstr("the rest of the file"))));
  // Positions do not count them.
  auto iterator = records.iterate();
  for (int i = 0; i < 2; ++i) iterator.next();
  EXPECT_THAT(outcomes_of<Error>(records.iterate_from(iterator.position())),
              ElementsAre("r4", "r6"));
}

// --- Positions. ---------------------------------------------------------------------------------

/// Goes on from every place of an iteration, errors included, and finds the same rest.
void expect_same_rest_everywhere(const Dataset<std::string>& dataset) {
  const Texts all = outcomes_of<DataError>(dataset.iterate());
  auto iterator = dataset.iterate();
  for (std::size_t passed = 0;; ++passed) {
    const auto position = DatasetPosition::parse(iterator.position().to_string());
    EXPECT_EQ(outcomes_of<DataError>(dataset.iterate_from(position)),
              Texts(all.begin() + static_cast<std::ptrdiff_t>(passed), all.end()))
        << "behind element " << passed;
    try {
      if (!iterator.next()) break;
    } catch (const DataError&) {
    }
  }
}

TEST_F(Readers, PositionsOverSeveralFiles) {
  const Warnings collected_in_silence;
  const std::string a = write_records("a", {"r0", "r1", "r2", "r3"});
  write_records("b", {});
  const std::string c = write_records("c", {"r4", "r5", "r6"}, Compression::gzip);
  const std::string d = write_records("d", {"r7", "r8"});
  expect_same_rest_everywhere(tfrecord(path("?")));
  expect_same_rest_everywhere(tfrecord(path("?")).prefetch(3));
  expect_same_rest_everywhere(tfrecord(path("?")).shard(3, 1));
  // With places that cannot be read.
  damage(a, 1, 2);
  damage(a, 2, 2);
  damage(d, 1, 2);
  expect_same_rest_everywhere(tfrecord(path("?")));
  expect_same_rest_everywhere(tfrecord(path("?"), {.on_corrupt = CorruptRecords::skip}));
  const std::string content = read_file(c);
  write_file(c, content.substr(0, content.size() - 6));
  expect_same_rest_everywhere(tfrecord(path("?")));
  expect_same_rest_everywhere(tfrecord(path("?"), {.check = false}));
  expect_same_rest_everywhere(
      tfrecord(path("?"), {.on_corrupt = CorruptRecords::skip, .check = false}));
}

TEST_F(Readers, PositionsOfLinesAndRecordsOfOneLength) {
  write("a", "one\ntwo\n" + std::string(100, 'x') + "\n");
  write("b", "three\nfour");
  expect_same_rest_everywhere(text_lines(path("?"), {.max_line_bytes = 50}));
  write("a", "aabbc");
  write("b", "ddee");
  expect_same_rest_everywhere(fixed_length_records(path("?"), {.record_bytes = 2}));
}

TEST_F(Readers, AFileThatIsGoneWhenAPositionIsGoneBackToIsAnError) {
  write_records("a", {"r0"});
  write_records("b", {"r1", "r2"});
  const auto records = tfrecord(path("?"));
  auto iterator = records.iterate();
  for (int i = 0; i < 2; ++i) iterator.next();
  std::filesystem::remove(path("a"));
  EXPECT_THAT(
      error_of<SystemError>([&] { static_cast<void>(records.iterate_from(iterator.position())); }),
      HasSubstr(path("a")));
}

// --- As stages. ---------------------------------------------------------------------------------

TEST_F(Readers, AreStagesOverTheirFiles) {
  write("a", "0\n1\n");
  write("b", "2\n3\n");
  const auto lines = text_lines(path("?"));
  const auto& stage = *lines.stage();
  EXPECT_EQ(stage.role(), detail::Stage::Role::reader);
  ASSERT_EQ(stage.inputs().size(), 1u);
  EXPECT_THAT(stage.inputs()[0]->first_strings(10), ElementsAre(path("a"), path("b")));
  // What sharding by file does.
  const auto second = stage.with_inputs({stage.inputs()[0]->sharded(2, 1)});
  EXPECT_THAT(texts_of(Dataset<std::string>(detail::as_stage_of<std::string>(second))),
              ElementsAre("2", "3"));
}

TEST_F(Readers, AFunctionThatReadsItsFileIsRecognised) {
  write("a", "0\n1\n");
  write("b", "2\n3\n");
  const auto reading = data::files(path("?")).interleave([](const std::string& file) {
    return text_lines({file}).map([](const std::string& line) { return line + "!"; });
  });
  EXPECT_TRUE(reading.stage()->reads_its_elements());
  EXPECT_THAT(texts_of(reading), ElementsAre("0!", "2!", "1!", "3!"));
  const auto always_a = path("a");
  const auto other = data::files(path("b")).flat_map(
      [always_a](const std::string&) { return text_lines({always_a}); });
  EXPECT_FALSE(other.stage()->reads_its_elements());
}

TEST_F(Readers, ManyThreadsReadOneDataset) {
  Texts expected;
  for (int file = 0; file < 3; ++file) {
    Texts records;
    for (int i = 0; i < 200; ++i) records.push_back(std::to_string(1000 * file + i));
    expected.insert(expected.end(), records.begin(), records.end());
    write_records("f" + std::to_string(file), records, Compression::gzip);
  }
  const auto records =
      tfrecord(path("f*")).map([](const std::string& r) { return r; }, Parallel{2}).prefetch(4);
  std::vector<Texts> seen(3);
  {
    std::vector<std::jthread> threads;
    for (Texts& own : seen) threads.emplace_back([&] { own = texts_of(records); });
  }
  for (const Texts& own : seen) EXPECT_EQ(own, expected);
}

std::size_t peak_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
}

TEST_F(Readers, APackedFileIsPassedOverInLittleMemory) {
  constexpr std::size_t kRecord = std::size_t{1} << 20;
  constexpr int kRecords = 256;
  {
    RecordWriter writer(path("zeros"), {.compression = Compression::gzip});
    const std::string zeros(kRecord, '\0');
    for (int i = 0; i < kRecords; ++i) writer.write(zeros);
    writer.write("end");
    writer.close();
  }
  const std::size_t before = peak_bytes();
  EXPECT_THAT(texts_of(tfrecord(path("zeros")).skip(kRecords)), ElementsAre("end"));
  EXPECT_LT(peak_bytes() - before, 32 * kRecord);
}

}  // namespace
}  // namespace lockstep
