// lockstep data inspect
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <limits>
#include <variant>

#include "data.h"
#include "lockstep/array_file.h"
#include "lockstep/error.h"
#include "lockstep/example.h"
#include "lockstep/tfrecord.h"
#include "names.h"

namespace lockstep::tool {
namespace {

constexpr std::size_t kShownBytes = 40;
constexpr std::size_t kShownValues = 5;

/// The first bytes as text, the others as \x1f.
std::string preview(std::string_view bytes) {
  std::string text = "\"";
  for (const char byte : bytes.substr(0, kShownBytes)) {
    const auto code = static_cast<unsigned char>(byte);
    if (std::isprint(code) != 0 && byte != '"' && byte != '\\') {
      text += byte;
    } else {
      fmt::format_to(std::back_inserter(text), "\\x{:02x}", code);
    }
  }
  return text + (bytes.size() > kShownBytes ? "\"..." : "\"");
}

std::string value_text(const std::string& bytes) {
  return fmt::format("{} ({} bytes)", preview(bytes), bytes.size());
}
template <class Number>
std::string value_text(Number value) {
  return fmt::format("{}", value);
}

template <class Values>
std::string values_text(const Values& values) {
  std::string text;
  for (std::size_t i = 0; i < std::min(values.size(), kShownValues); ++i) {
    text += (i > 0 ? ", " : "") + value_text(values[i]);
  }
  return text + (values.size() > kShownValues ? ", ..." : "");
}

void print_features(const Example& example) {
  std::size_t width = 0;
  for (const auto& [name, feature] : example) width = std::max(width, name.size());
  for (const auto& [name, feature] : example) {
    const auto kind = static_cast<FeatureKind>(feature.index());
    const auto [count, text] = std::visit(
        [](const auto& values) { return std::pair(values.size(), values_text(values)); }, feature);
    fmt::print("    {:<{}}  {:<7} {:>6} {}  {}\n", name, width, to_string(kind), count,
               count == 1 ? "value " : "values", text);
  }
}

void print_record(std::string_view record, std::uint64_t number, std::uint64_t offset) {
  Example example;
  try {
    example = decode_example(record);
  } catch (const DataError&) {  // some other record
  }
  fmt::print("  record {} at byte {}: {} bytes, {}\n", number, offset, record.size(),
             example.empty() ? preview(record) : "a tf.Example");
  print_features(example);
}

void inspect_array(const std::string& file, const ArrayFileInfo& array) {
  fmt::print("{}: {} array of {} [{}]\n", file, array.format == ArrayFormat::idx ? "IDX" : "NPY",
             to_string(array.type), fmt::join(array.shape, ", "));
}

void inspect_records(const std::string& file, std::uint64_t show, DataProgress& progress) {
  RecordReader reader(file);
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;
  std::size_t smallest = std::numeric_limits<std::size_t>::max();
  std::size_t largest = 0;
  std::uint64_t offset = 0;
  while (const auto record = reader.next()) {
    if (records == 0) fmt::print("{}: records\n", file);
    if (records < show) print_record(*record, records, offset);
    offset = reader.offset();
    bytes += record->size();
    smallest = std::min(smallest, record->size());
    largest = std::max(largest, record->size());
    progress.show(file, ++records);
  }
  progress.clear();
  if (records == 0) {
    fmt::print("{}: empty\n", file);
    return;
  }
  fmt::print("  {} records, {} of data; the smallest has {} bytes, the largest {}, the mean {}\n",
             records, size_text(bytes), smallest, largest, bytes / records);
}

}  // namespace

int inspect_data(const Files& files, std::uint64_t show) {
  DataProgress progress;
  int code = 0;
  for (const std::string& file : files) {
    try {
      if (const auto array = array_file_info(file)) {
        inspect_array(file, *array);
      } else {
        inspect_records(file, show, progress);
      }
    } catch (const Error& error) {
      progress.complain(error.what());
      code = 1;
    }
  }
  return code;
}

}  // namespace lockstep::tool
