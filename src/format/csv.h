// CSV: rows of fields as in RFC 4180, from a stream.
//
//   CsvReader rows(read, "train.csv", {.header = CsvHeader::first_row});
//   std::vector<std::string_view> fields;
//   while (rows.next(fields)) {
//     const auto price = parse_number<float>(fields[2], rows.place(2));
//   }
//
// A field may be in quotes; then it may hold delimiters, line ends and quotes written twice. Lines
// end with LF or CR LF, the last one may end with the file. A quote anywhere else, and a CR that no
// LF follows, are errors: they are what a wrong delimiter or a damaged file looks like. An empty
// line is skipped, unless rows have one column: then it is a row whose field is empty. A UTF-8 byte
// order mark at the start is skipped.
//
// Every row must have as many columns as the header or, without one, the first row. Memory is
// bounded by the longest row, which is limited. Errors are DataErrors that name file, line and
// column, counted from 1.
//
// Ownership: the views are good until the next call of next(). Thread rule: one thread a reader.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/read_bytes.h"

namespace lockstep::format {

enum class CsvHeader : std::uint8_t {
  none,       // the first row is data
  first_row,  // the first row names the columns
};

struct CsvOptions {
  char delimiter = ',';
  CsvHeader header = CsvHeader::none;
  /// 0: as many as the first row has.
  std::size_t columns = 0;
  /// Of one row with its quotes and its line end.
  std::size_t max_row_bytes = std::size_t{16} << 20;
};

/// Where a field stands, for messages.
struct CsvPlace {
  std::string_view file;
  std::uint64_t line = 0;
  std::size_t column = 0;   // from 0
  std::string_view name{};  // of the column, empty if it has none
};

class CsvReader {
 public:
  /// Reads the header, if there is one. InvalidUsage for a delimiter that cannot be one.
  CsvReader(ReadBytes read, std::string file, CsvOptions options = {});

  /// The next row; false at the end of the file.
  bool next(std::vector<std::string_view>& fields);

  /// Names of the columns; empty without a header.
  [[nodiscard]] const std::vector<std::string>& header() const noexcept { return header_; }
  /// The line on which the row of the last next() begins.
  [[nodiscard]] std::uint64_t line() const noexcept { return row_line_; }
  /// Of a field of that row, from 0.
  [[nodiscard]] CsvPlace place(std::size_t column) const noexcept;

 private:
  bool next_row(std::vector<std::string_view>& fields);
  /// Bytes of the next row with its line end, all in the buffer; 0 at the end of the file.
  std::size_t find_row();
  /// More bytes behind those in the buffer; false if there are none.
  bool refill();
  void split(std::size_t bytes, std::vector<std::string_view>& fields);
  [[noreturn]] void fail(std::uint64_t line, std::size_t column, const std::string& what) const;

  ReadBytes read_;
  std::string file_;
  CsvOptions options_;
  std::array<bool, 256> special_{};  // ends a field without quotes, rightly or not
  std::size_t columns_ = 0;          // 0: not known yet
  std::uint64_t columns_line_ = 0;
  std::vector<std::string> header_;

  std::vector<char> buffer_;
  std::size_t begin_ = 0;  // of what has not been given out
  std::size_t end_ = 0;
  bool at_end_ = false;

  std::uint64_t row_line_ = 0;
  std::uint64_t next_line_ = 1;
};

/// The whole field as a number, blanks around it aside. DataError that names the place and the text
/// if it is none or does not fit.
template <class T>
T parse_number(std::string_view text, const CsvPlace& place);

extern template float parse_number(std::string_view, const CsvPlace&);
extern template double parse_number(std::string_view, const CsvPlace&);
extern template std::int32_t parse_number(std::string_view, const CsvPlace&);
extern template std::int64_t parse_number(std::string_view, const CsvPlace&);

}  // namespace lockstep::format
