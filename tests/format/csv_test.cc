#include "format/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/error.h"
#include "tests/format/bytes.h"

namespace lockstep::format {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Row = std::vector<std::string>;

std::vector<Row> rows_of(std::string_view file, CsvOptions options = {}, std::size_t piece = 1000) {
  const Bytes raw = bytes(file);
  CsvReader reader(in_pieces(raw, piece), "t.csv", options);
  std::vector<Row> rows;
  std::vector<std::string_view> fields;
  while (reader.next(fields)) rows.emplace_back(fields.begin(), fields.end());
  return rows;
}

auto refused_with(const std::string& what) { return ThrowsMessage<DataError>(HasSubstr(what)); }

TEST(Csv, PlainRows) {
  EXPECT_THAT(rows_of("a,b\nc,d\n"), ElementsAre(Row{"a", "b"}, Row{"c", "d"}));
  EXPECT_THAT(rows_of("a,b\r\nc,d"), ElementsAre(Row{"a", "b"}, Row{"c", "d"}));
  EXPECT_THAT(rows_of(",\n,"), ElementsAre(Row{"", ""}, Row{"", ""}));
  EXPECT_THAT(rows_of("a\tb,c\n", {.delimiter = '\t'}), ElementsAre(Row{"a", "b,c"}));
  EXPECT_THAT(rows_of("\xef\xbb\xbf"
                      "a,b\n"),
              ElementsAre(Row{"a", "b"}));
  EXPECT_TRUE(rows_of("").empty());
  EXPECT_TRUE(rows_of("\n\r\n\n").empty());
}

TEST(Csv, QuotedFields) {
  EXPECT_THAT(rows_of("\"a,b\",\"c\nd\"\n"), ElementsAre(Row{"a,b", "c\nd"}));
  EXPECT_THAT(rows_of("\"a\"\"b\",\"\"\"\"\r\n"), ElementsAre(Row{"a\"b", "\""}));
  EXPECT_THAT(rows_of("\"\",x\n"), ElementsAre(Row{"", "x"}));
  EXPECT_THAT(rows_of("x,\"a\r\nb\""), ElementsAre(Row{"x", "a\r\nb"}));
  EXPECT_THAT(rows_of("\"\"\n\"\"\n"), ElementsAre(Row{""}, Row{""}));
}

TEST(Csv, PiecesOfAnySizeGiveTheSameRows) {
  constexpr std::string_view file = "a,\"b\"\"\r\n,\"\r\n\"\"\",\",d\n\n1,2";
  const auto whole = rows_of(file);
  EXPECT_THAT(whole, ElementsAre(Row{"a", "b\"\r\n,"}, Row{"\",", "d"}, Row{"1", "2"}));
  for (std::size_t piece = 1; piece < file.size(); ++piece) {
    EXPECT_EQ(rows_of(file, {}, piece), whole);
  }
}

TEST(Csv, RowsLongerThanTheBuffer) {
  const std::string large(200'000, 'x');
  const std::string file = "1,2\n" + large + ",\"" + large + "\"\n3,4\n";
  EXPECT_THAT(rows_of(file, {}, 77'777),
              ElementsAre(Row{"1", "2"}, Row{large, large}, Row{"3", "4"}));
}

TEST(Csv, ManyRowsAcrossManyBuffers) {
  std::string file;
  for (int i = 0; i < 50'000; ++i)
    file += std::to_string(i) + ",\"" + std::to_string(2 * i) + "\"\n";
  const auto rows = rows_of(file, {}, 4096);
  ASSERT_EQ(rows.size(), 50'000U);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(rows[i], (Row{std::to_string(i), std::to_string(2 * i)}));
  }
}

TEST(Csv, HeaderNamesTheColumns) {
  const Bytes raw = bytes("x,\"the y\"\n1,2\n");
  CsvReader reader(bytes_of(raw), "t.csv", {.header = CsvHeader::first_row});
  EXPECT_THAT(reader.header(), ElementsAre("x", "the y"));
  std::vector<std::string_view> fields;
  ASSERT_TRUE(reader.next(fields));
  EXPECT_EQ(reader.line(), 2U);
  EXPECT_EQ(reader.place(1).name, "the y");
  EXPECT_FALSE(reader.next(fields));
  EXPECT_FALSE(reader.next(fields));
  EXPECT_THAT([] { rows_of("", {.header = CsvHeader::first_row}); }, refused_with("empty"));
}

TEST(Csv, LinesAreCountedThroughQuotes) {
  const Bytes raw = bytes("a,\"1\n2\n3\"\n\nb,c\n");
  CsvReader reader(bytes_of(raw), "t.csv");
  std::vector<std::string_view> fields;
  ASSERT_TRUE(reader.next(fields));
  EXPECT_EQ(reader.line(), 1U);
  ASSERT_TRUE(reader.next(fields));
  EXPECT_EQ(reader.line(), 5U);
}

TEST(Csv, AnEmptyLineIsARowOnlyOfOneColumn) {
  EXPECT_THAT(rows_of("1,2\n\n3,4\n"), ElementsAre(Row{"1", "2"}, Row{"3", "4"}));
  EXPECT_THAT(rows_of("1\n\n3\n"), ElementsAre(Row{"1"}, Row{""}, Row{"3"}));
  EXPECT_THAT(rows_of("\n1\n", {.columns = 1}), ElementsAre(Row{""}, Row{"1"}));
}

TEST(Csv, WrongNumberOfColumns) {
  EXPECT_THAT([] { rows_of("a,b\nc,d\ne\n"); },
              refused_with("t.csv:3: 1 columns, expected 2 as in line 1"));
  EXPECT_THAT([] { rows_of("a,b\n", {.columns = 3}); },
              refused_with("t.csv:1: 2 columns, expected 3"));
}

TEST(Csv, MisplacedQuotesAndLineEnds) {
  EXPECT_THAT([] { rows_of("a,b\nc,d\"e\n"); }, refused_with("t.csv:2: column 2: a quote in"));
  EXPECT_THAT([] { rows_of("\"a\"b,c\n"); }, refused_with("t.csv:1: column 1: something follows"));
  EXPECT_THAT([] { rows_of("a,\"b\nc\nd"); }, refused_with("t.csv:1: column 2: a quote is not"));
  EXPECT_THAT([] { rows_of("a\rb\r"); }, refused_with("t.csv:1: column 1: a CR"));
  EXPECT_THAT([] { rows_of("a,b\n\rc,d\n"); }, refused_with("t.csv:2: column 1: a CR"));
  EXPECT_THAT([] { rows_of("\""); }, refused_with("not closed"));
}

TEST(Csv, RowsAreLimited) {
  EXPECT_EQ(rows_of("12345\n", {.max_row_bytes = 6}).size(), 1U);
  EXPECT_THAT([] { rows_of("1\n123456\n", {.max_row_bytes = 6}); },
              refused_with("t.csv:2: the row has more than 6 bytes"));
  const std::string endless = "\"" + std::string(1 << 20, 'x');
  EXPECT_THAT([&] { rows_of(endless, {.max_row_bytes = 100'000}); }, refused_with("more than"));
}

TEST(Csv, ImpossibleDelimiters) {
  for (const char c : {'"', '\r', '\n'}) {
    EXPECT_THROW(rows_of("", {.delimiter = c}), InvalidUsage);
  }
}

TEST(CsvNumber, WholeFieldIsTheNumber) {
  const CsvPlace place{.file = "t.csv", .line = 7, .column = 2, .name = "price"};
  EXPECT_EQ(parse_number<float>("1.5", place), 1.5F);
  EXPECT_EQ(parse_number<double>(" -2e3\t", place), -2000.0);
  EXPECT_EQ(parse_number<std::int64_t>("+42", place), 42);
  EXPECT_EQ(parse_number<std::int32_t>("-2147483648", place), std::numeric_limits<int>::min());
  EXPECT_TRUE(std::isnan(parse_number<float>("nan", place)));
  EXPECT_EQ(parse_number<float>("1e-60", place), 0.0F);
  EXPECT_EQ(parse_number<double>("1e-400", place), 0.0);
}

TEST(CsvNumber, ErrorsNameFileLineColumnAndText) {
  const CsvPlace place{.file = "t.csv", .line = 7, .column = 2, .name = "price"};
  EXPECT_THAT([&] { parse_number<float>("1.5x", place); },
              refused_with("t.csv:7: column 3 (price): \"1.5x\" is no number"));
  for (const char* wrong : {"", " ", "+", "-", "+-1", "1 2", "1,5", "0x10"}) {
    EXPECT_THROW(parse_number<std::int64_t>(wrong, place), DataError) << wrong;
    EXPECT_THROW(parse_number<double>(wrong, place), DataError) << wrong;
  }
  EXPECT_THAT([&] { parse_number<std::int64_t>("1.5", place); }, refused_with("no whole number"));
  EXPECT_THAT([&] { parse_number<std::int32_t>("2147483648", place); },
              refused_with("does not fit into 32 bits"));
  EXPECT_THAT([&] { parse_number<float>("1e39", place); }, refused_with("does not fit"));
  EXPECT_THAT([&] { parse_number<float>("a\nb" + std::string(100, 'c'), place); },
              refused_with("\"a\\x0ab"));
}

}  // namespace
}  // namespace lockstep::format
