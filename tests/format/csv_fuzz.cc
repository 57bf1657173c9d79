// Any bytes, in pieces of any size: rows that are the same whatever the pieces, or a DataError.
// Rows written again with every field in quotes are read back as they were.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "bytes.h"
#include "format/csv.h"
#include "lockstep/error.h"

using namespace lockstep::format;

namespace {

using Rows = std::vector<std::vector<std::string>>;

std::optional<Rows> rows_of(std::span<const std::byte> file, std::size_t piece) {
  try {
    CsvReader reader(in_pieces(file, piece), "f.csv", {.max_row_bytes = 1000});
    Rows rows;
    std::vector<std::string_view> fields;
    while (reader.next(fields)) {
      rows.emplace_back(fields.begin(), fields.end());
      for (std::size_t i = 0; i < fields.size(); ++i) {
        try {
          (void)parse_number<float>(fields[i], reader.place(i));
          (void)parse_number<std::int64_t>(fields[i], reader.place(i));
        } catch (const lockstep::DataError&) {
        }
      }
    }
    return rows;
  } catch (const lockstep::DataError&) {
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > 400) return 0;  // so that a row with all its quotes is below the limit
  const auto file = std::as_bytes(std::span(data, size)).subspan(1);
  const auto rows = rows_of(file, 1 + data[0] % 16);
  if (rows != rows_of(file, file.size() + 1)) std::abort();
  if (!rows) return 0;
  std::string again;
  for (const auto& row : *rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      again += i == 0 ? "\"" : ",\"";
      for (const char c : row[i]) again += c == '"' ? "\"\"" : std::string(1, c);
      again += '"';
    }
    again += "\n";
  }
  if (again.size() > 1000) return 0;
  if (rows_of(bytes(again), 7) != rows) std::abort();
  return 0;
}
