#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "lockstep/readers.h"
#include "tests/input/files_to_read.h"
#include "tests/input/helpers.h"

namespace lockstep {
namespace {

using data::csv;
using data::CsvHeader;
using data::CsvType;
using data::tokens;
using data::TokenType;
using format::packed;
using testing::all_of;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::numbers_of;
using testing::Rows;

using RowReaders = testing::FilesToRead;

using Row = std::map<std::string, Tensor>;

std::vector<Row> rows_of(const Dataset<Row>& dataset) {
  std::vector<Row> all;
  for (const Row& row : dataset) all.push_back(row);
  return all;
}

TEST_F(RowReaders, CsvColumnsByName) {
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

TEST_F(RowReaders, CsvWithoutAHeaderAndWithoutADescription) {
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

TEST_F(RowReaders, CsvErrorsNameFileLineAndColumn) {
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

TEST_F(RowReaders, WindowsOfTokens) {
  write("a", testing::bytes_of_numbers<std::uint16_t>({1, 2, 3, 4, 65535}));
  write("b", testing::bytes_of_numbers<std::uint16_t>({7, 8}));
  EXPECT_THAT(all_of(tokens(path("?"), {.length = 2})),
              ElementsAre(Rows{1, 2}, Rows{3, 4}, Rows{7, 8}));
  const auto sliding = tokens(path("a"), {.length = 3, .stride = 1});
  EXPECT_THAT(all_of(sliding), ElementsAre(Rows{1, 2, 3}, Rows{2, 3, 4}, Rows{3, 4, 65535}));
  EXPECT_THAT(all_of(sliding.skip(2)), ElementsAre(Rows{3, 4, 65535}));
  EXPECT_THAT(all_of(tokens(path("?"), {.length = 2}).skip(2)), ElementsAre(Rows{7, 8}));
  EXPECT_THAT(sliding.element_spec(), ElementsAre(TensorSpec{at::kLong, {3}}));
  EXPECT_EQ(sliding.cardinality(), 3);
  EXPECT_EQ(tokens(path("?"), {.length = 2}).batch(2).cardinality(), 2);
  EXPECT_EQ(tokens({path("a"), path("missing")}, {.length = 2}).cardinality(), kUnknownCardinality);
  EXPECT_EQ(tokens(data::files(path("?")).repeat(), {.length = 2}).cardinality(),
            kUnknownCardinality);
  write("c", testing::bytes_of_numbers<std::int32_t>({-1, 5}));
  EXPECT_THAT(all_of(tokens(path("c"), {.type = TokenType::int32, .length = 2})),
              ElementsAre(Rows{-1, 5}));
  EXPECT_THROW(tokens(path("a"), {}), InvalidUsage);
  write("d", "odd");
  EXPECT_THAT(error_of<DataError>([&] { all_of(tokens(path("d"), {.length = 1})); }),
              HasSubstr(path("d") + ": 3 bytes"));
}

// --- Files that shrink. -------------------------------------------------------------------------

/// Reads an element, cuts the file to half of it and reads on: an error, and not the end.
template <class T>
void expect_data_loss(const Dataset<T>& dataset, const std::string& file) {
  SCOPED_TRACE(dataset.explain());
  auto iterator = dataset.iterate();
  EXPECT_TRUE(iterator.next());
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  int elements = 1;
  try {
    while (iterator.next()) ++elements;
    ADD_FAILURE() << "ended after " << elements << " elements";
  } catch (const DataError& error) {
    EXPECT_EQ(error.code(), Code::data_loss);
    EXPECT_THAT(error.what(), HasSubstr(file));
  }
  EXPECT_LE(elements, 1000);
}

TEST_F(RowReaders, AFileThatIsCutWhileItIsReadIsDataLoss) {
  std::string rows;
  for (int i = 0; i < 2000; ++i) rows += std::string(999, '7') + "\n";
  const auto lines = [&] { return write("lines", rows); };
  expect_data_loss(data::text_lines(lines()), path("lines"));
  expect_data_loss(data::fixed_length_records(lines(), {.record_bytes = 1000}), path("lines"));
  expect_data_loss(
      csv(lines(), {.columns = {{.name = "x", .type = CsvType::bytes}}, .header = CsvHeader::none}),
      path("lines"));
  expect_data_loss(tokens(lines(), {.type = TokenType::uint8, .length = 1000}), path("lines"));
  write_records("records", std::vector<std::string>(2000, std::string(1000, 'x')));
  expect_data_loss(data::tfrecord(path("records")), path("records"));
}

}  // namespace
}  // namespace lockstep
