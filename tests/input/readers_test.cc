#include "lockstep/readers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <mutex>

#include "lockstep/log.h"
#include "tests/format/files.h"
#include "tests/input/helpers.h"

namespace lockstep {
namespace {

using data::csv;
using data::CsvHeader;
using data::CsvType;
using data::fixed_length_records;
using data::parse_example;
using data::text_lines;
using data::tfrecord;
using data::tokens;
using data::TokenType;
using format::packed;
using format::read_file;
using format::write_file;
using testing::all_of;
using testing::count;
using ::testing::ElementsAre;
using testing::error_of;
using testing::flat;
using ::testing::HasSubstr;
using testing::numbers_of;
using testing::Rows;

using Texts = std::vector<std::string>;

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
    const std::lock_guard lock(mutex_);
    return texts_;
  }

 private:
  std::mutex mutex_;
  Texts texts_;
};

class Readers : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return directory_.path() + "/" + name; }
  std::string write(const std::string& name, std::string_view content) const {
    write_file(path(name), content);
    return path(name);
  }
  std::string write_records(const std::string& name, const Texts& records,
                            Compression compression = Compression::none) const {
    RecordWriter writer(path(name), {.compression = compression});
    for (const std::string& record : records) writer.write(record);
    writer.close();
    return path(name);
  }
  /// Turns a bit of the data of a record; all records have `length` bytes.
  void damage(const std::string& file, std::size_t record, std::size_t length) const {
    std::string content = read_file(file);
    content[record * (length + 16) + 12] ^= 1;
    write_file(file, content);
  }

 private:
  TemporaryDirectory directory_;
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

// --- Rows and tokens. ---------------------------------------------------------------------------

using Row = std::map<std::string, Tensor>;

std::vector<Row> rows_of(const Dataset<Row>& dataset) {
  std::vector<Row> all;
  for (const Row& row : dataset) all.push_back(row);
  return all;
}

TEST_F(Readers, CsvColumnsByName) {
  write("a.csv", "id,price,city\n1,2.5,Rome\n2,,\"Bad, Ems\"\n");
  write("b.csv", packed("city,id,price\nOslo,3,-1e3\n", Compression::gzip));
  const auto dataset = csv(path("*.csv"), {.columns = {{.name = "price", .if_empty = "0"},
                                                       {.name = "id", .type = CsvType::int64},
                                                       {.name = "city", .type = CsvType::bytes}}});
  const auto rows = rows_of(dataset);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].at("price").item<float>(), 2.5F);
  EXPECT_EQ(rows[1].at("price").item<float>(), 0.0F);
  EXPECT_EQ(rows[2].at("price").item<float>(), -1e3F);
  EXPECT_EQ(rows[2].at("id").item<std::int64_t>(), 3);
  EXPECT_EQ(numbers_of(rows[0].at("city")), Rows({'R', 'o', 'm', 'e'}));
  EXPECT_EQ(rows[1].at("city").size(0), 8);
  EXPECT_THAT(dataset.element_spec(),
              ElementsAre(TensorSpec{at::kByte, {kUnknownLength}}, TensorSpec{at::kLong, {}},
                          TensorSpec{at::kFloat, {}}));
  EXPECT_EQ(rows_of(dataset.skip(2)).at(0).at("id").item<std::int64_t>(), 3);
}

TEST_F(Readers, CsvWithoutAHeaderAndWithoutADescription) {
  write("a", "1;2;3\n4;5;6\n");
  const auto named = csv(path("a"), {.columns = {{.name = "x"}, {.name = ""}, {.name = "y"}},
                                     .header = CsvHeader::none,
                                     .delimiter = ';'});
  const auto batch = rows_of(named.batch(2)).at(0);
  EXPECT_EQ(numbers_of(batch.at("x")), Rows({1, 4}));
  EXPECT_EQ(numbers_of(batch.at("y")), Rows({3, 6}));
  EXPECT_EQ(batch.size(), 2u);

  write("b", "x,y\n7,8\n");
  const auto rows = rows_of(csv(path("b")));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].at("y").item<float>(), 8.0F);
  EXPECT_THAT(csv(path("b")).element_spec(),
              ElementsAre(TensorSpec{at::kFloat, {}}, TensorSpec{at::kFloat, {}}));
}

TEST_F(Readers, CsvErrorsNameFileLineAndColumn) {
  write("a", "x,y\n1,2\n3,many\n5,6\n7\n8,9\n");
  write("b", "x,y\n10,11\n");
  auto iterator = csv(path("?")).iterate();
  const auto x = [&] { return iterator.next()->at("x").item<std::int64_t>(); };
  EXPECT_EQ(x(), 1);
  EXPECT_THAT(error_of<DataError>([&] { iterator.next(); }),
              HasSubstr(path("a") + ":3: column 2 (y)"));
  EXPECT_EQ(x(), 5);  // only that row was bad
  EXPECT_THAT(error_of<DataError>([&] { iterator.next(); }), HasSubstr(path("a") + ":5"));
  EXPECT_EQ(x(), 10);  // rows of another width: the file is not trusted any more
  EXPECT_EQ(iterator.next(), std::nullopt);
  const auto at_end = csv(path("?")).iterate_from(iterator.position());

  EXPECT_THAT(error_of<DataError>([&] { rows_of(csv(path("b"), {.columns = {{.name = "z"}}})); }),
              HasSubstr("no column is named \"z\"; there are \"x\", \"y\""));
  EXPECT_THROW(csv(path("b"), {.columns = {{.name = "x"}, {.name = "x"}}}), InvalidUsage);
  EXPECT_THROW(csv(path("b"), {.columns = {{.name = "x", .if_empty = "none"}}}), InvalidUsage);
  EXPECT_THROW(csv(path("b"), {.header = CsvHeader::none}), InvalidUsage);
  write("empty", "");
  EXPECT_THAT(error_of<DataError>([&] { rows_of(csv(path("empty"))); }), HasSubstr(path("empty")));
}

template <class T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

TEST_F(Readers, WindowsOfTokens) {
  write("a", raw<std::uint16_t>({1, 2, 3, 4, 65535}));
  write("b", raw<std::uint16_t>({7, 8}));
  EXPECT_THAT(all_of(tokens(path("?"), {.length = 2})),
              ElementsAre(Rows{1, 2}, Rows{3, 4}, Rows{7, 8}));
  const auto sliding = tokens(path("a"), {.length = 3, .stride = 1});
  EXPECT_THAT(all_of(sliding), ElementsAre(Rows{1, 2, 3}, Rows{2, 3, 4}, Rows{3, 4, 65535}));
  EXPECT_THAT(all_of(sliding.skip(2)), ElementsAre(Rows{3, 4, 65535}));
  EXPECT_THAT(all_of(tokens(path("?"), {.length = 2}).skip(2)), ElementsAre(Rows{7, 8}));
  EXPECT_THAT(sliding.element_spec(), ElementsAre(TensorSpec{at::kLong, {3}}));
  write("c", raw<std::int32_t>({-1, 5}));
  EXPECT_THAT(all_of(tokens(path("c"), {.type = TokenType::int32, .length = 2})),
              ElementsAre(Rows{-1, 5}));
  EXPECT_THROW(tokens(path("a"), {}), InvalidUsage);
  write("d", "odd");
  EXPECT_THAT(error_of<DataError>([&] { all_of(tokens(path("d"), {.length = 1})); }),
              HasSubstr(path("d") + ": 3 bytes"));
}

// --- Arrays. ------------------------------------------------------------------------------------

TEST_F(Readers, IdxFilesPlainAndPacked) {
  const std::string content(
      "\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x03"
      "abcdef",
      22);
  write("plain", content);
  write("packed.gz", packed(content, Compression::gzip));
  for (const char* name : {"plain", "packed.gz"}) {
    const Tensor images = data::read_idx(path(name));
    EXPECT_EQ(images.scalar_type(), at::kByte);
    EXPECT_EQ(images.sizes(), at::IntArrayRef({2, 1, 3}));
    EXPECT_EQ(numbers_of(images), count('a', 'g'));
    EXPECT_THAT(all_of(data::idx(path(name))),
                ElementsAre(Rows{'a', 'b', 'c'}, Rows{'d', 'e', 'f'}));
  }
  write("short", content.substr(0, 20));
  EXPECT_THAT(error_of<DataError>([&] { data::read_idx(path("short")); }),
              HasSubstr(path("short")));
  EXPECT_THAT(error_of<SystemError>([&] { data::idx(path("missing")); }),
              HasSubstr(path("missing")));
  // Values of several bytes are big endian in the file.
  write("wide", std::string("\0\0\x0c\x01\0\0\0\x01\0\0\1\2", 12));
  EXPECT_EQ(numbers_of(data::read_idx(path("wide"))), Rows({258}));
  write("none", std::string("\0\0\x08\x01\0\0\0\0", 8));
  EXPECT_EQ(data::read_idx(path("none")).numel(), 0);
}

TEST_F(Readers, NpyFilesThereAndBack) {
  for (const Tensor& tensor : {torch::arange(6).view({2, 3}), torch::randn({4, 1, 2}),
                               torch::full({}, 7.5), torch::zeros({0, 3}), torch::randn({3, 4}).t(),
                               torch::tensor({true, false}), torch::randn({5}).to(torch::kHalf)}) {
    data::write_npy(path("x.npy"), tensor);
    const Tensor back = data::read_npy(path("x.npy"));
    EXPECT_EQ(back.scalar_type(), tensor.scalar_type());
    EXPECT_TRUE(back.equal(tensor)) << tensor;
  }
  EXPECT_THROW(data::read_npy(path("missing")), SystemError);
  write("bad.npy", "no numpy");
  EXPECT_THAT(error_of<DataError>([&] { data::read_npy(path("bad.npy")); }),
              HasSubstr(path("bad.npy")));
}

TEST_F(Readers, NpyInFortranOrder) {
  std::string header = "{'descr': '<i8', 'fortran_order': True, 'shape': (2, 3), }";
  header.resize(117, ' ');
  header += '\n';
  write("f.npy", std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header +
                     raw<std::int64_t>({0, 3, 1, 4, 2, 5}));
  const Tensor array = data::read_npy(path("f.npy"));
  EXPECT_TRUE(array.is_contiguous());
  EXPECT_EQ(array.sizes(), at::IntArrayRef({2, 3}));
  EXPECT_EQ(numbers_of(array), count(0, 6));
}

/// A zip archive of one stored member.
std::string archive_of(const std::string& name, const std::string& content) {
  const auto crc = static_cast<std::uint32_t>(::crc32(
      0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size())));
  const auto u16 = [](std::size_t v) {
    return raw<std::uint16_t>({static_cast<std::uint16_t>(v)});
  };
  const auto u32 = [](std::size_t v) {
    return raw<std::uint32_t>({static_cast<std::uint32_t>(v)});
  };
  const std::string common = u16(20) + u16(0) + u16(0) + u16(0) + u16(0) + u32(crc) +
                             u32(content.size()) + u32(content.size()) + u16(name.size()) + u16(0);
  const std::string local = "PK\3\4" + common + name + content;
  const std::string directory =
      "PK\1\2" + u16(20) + common + u16(0) + u16(0) + u16(0) + u32(0) + u32(0) + name;
  return local + directory + "PK\5\6" + u16(0) + u16(0) + u16(1) + u16(1) + u32(directory.size()) +
         u32(local.size()) + u16(0);
}

TEST_F(Readers, NpzArchives) {
  const Tensor x = torch::arange(6).view({2, 3});
  data::write_npy(path("x.npy"), x);
  write("all.npz", archive_of("x.npy", read_file(path("x.npy"))));
  const auto arrays = data::read_npz(path("all.npz"));
  ASSERT_EQ(arrays.size(), 1u);
  EXPECT_TRUE(arrays.at("x").equal(x));
  write("none.npz", "nothing");
  EXPECT_THAT(error_of<DataError>([&] { data::read_npz(path("none.npz")); }),
              HasSubstr(path("none.npz")));
}

// --- tf.Example. --------------------------------------------------------------------------------

TEST_F(Readers, ExamplesBecomeTensors) {
  Example example;
  example["image"] = std::vector<float>{0, 1, 2, 3, 4, 5};
  example["label"] = std::vector<std::int64_t>{7};
  example["text"] = Texts{"abc"};
  example["words"] = Texts{"ab", "cd"};
  example["some"] = std::vector<std::int64_t>{1, 2, 3};
  const auto parse = parse_example(
      {fixed_float("image", {2, 3}), fixed_int64("label"), fixed_bytes("text"),
       variable_bytes("words"), fixed_strings("words2", {0}), variable_int64("some"),
       variable_float("absent"), with_default(fixed_float("weight"), std::vector<float>{1})});
  example["words2"] = Texts();
  const auto tensors = parse(encode_example(example));
  EXPECT_EQ(tensors.size(), 8u);
  EXPECT_EQ(tensors.at("image").sizes(), at::IntArrayRef({2, 3}));
  EXPECT_EQ(numbers_of(tensors.at("image")), count(0, 6));
  EXPECT_EQ(tensors.at("label").dim(), 0);
  EXPECT_EQ(tensors.at("label").item<std::int64_t>(), 7);
  EXPECT_EQ(numbers_of(tensors.at("text")), Rows({'a', 'b', 'c'}));
  EXPECT_EQ(tensors.at("text").scalar_type(), at::kByte);
  EXPECT_EQ(tensors.at("words").sizes(), at::IntArrayRef({2, 2}));
  EXPECT_EQ(tensors.at("words2").sizes(), at::IntArrayRef({0, 0}));
  EXPECT_EQ(numbers_of(tensors.at("some")), Rows({1, 2, 3}));
  EXPECT_EQ(tensors.at("absent").sizes(), at::IntArrayRef({0}));
  EXPECT_EQ(tensors.at("weight").item<float>(), 1.0F);

  example["words"] = Texts{"ab", "c"};
  EXPECT_THAT(error_of<DataError>([&] { parse(encode_example(example)); }),
              ::testing::AllOf(HasSubstr("\"words\""), HasSubstr("2 and 1 bytes")));
  EXPECT_THAT(error_of<DataError>([&] { parse("no example"); }), HasSubstr("not a tf.Example"));
  EXPECT_THROW(parse_example({fixed_float("x"), fixed_int64("x")}), InvalidUsage);
}

TEST_F(Readers, ExamplesAreParsedByManyThreads) {
  Texts records;
  for (std::int64_t i = 0; i < 500; ++i) {
    records.push_back(encode_example({{"x", std::vector<std::int64_t>{i, -i}}}));
  }
  records[100] = "broken";
  write_records("a", records);
  const auto examples =
      tfrecord(path("a")).map(parse_example({fixed_int64("x", {2})}), Parallel{3}).prefetch(2);
  auto iterator = examples.iterate();
  for (std::int64_t i = 0; i < 500; ++i) {
    if (i == 100) {
      EXPECT_THROW(iterator.next(), DataError);
    } else {
      EXPECT_EQ(numbers_of(iterator.next()->at("x")), Rows({i, -i}));
    }
  }
  EXPECT_FALSE(iterator.next().has_value());
}

}  // namespace
}  // namespace lockstep
