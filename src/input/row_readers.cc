// Readers of rows: CSV and tokens.
// clang-format off
#include "lockstep/readers.h"  // before libtorch's own
// clang-format on
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "format/byte_source.h"
#include "format/csv.h"
#include "format/tokens.h"
#include "input/file_bytes.h"
#include "input/file_stream.h"

namespace lockstep::data {

namespace {

using Row = std::map<std::string, Tensor>;

at::ScalarType type_of(CsvType type) {
  switch (type) {
    case CsvType::float32:
      return at::kFloat;
    case CsvType::int64:
      return at::kLong;
    case CsvType::bytes:
      break;
  }
  return at::kByte;
}

Tensor parse(CsvType type, std::string_view text, const format::CsvPlace& place) {
  Tensor value;
  switch (type) {
    case CsvType::float32:
      value = at::empty({}, at::kFloat);
      *value.data_ptr<float>() = format::parse_number<float>(text, place);
      break;
    case CsvType::int64:
      value = at::empty({}, at::kLong);
      *value.data_ptr<std::int64_t>() = format::parse_number<std::int64_t>(text, place);
      break;
    case CsvType::bytes:
      value = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
      if (!text.empty()) std::memcpy(value.data_ptr(), text.data(), text.size());
      break;
  }
  return value;
}

class CsvFile final : public detail::FileElements<Row> {
 public:
  CsvFile(const std::string& file, const CsvOptions& options)
      : reader_(stream_of(file, options.compression), file,
                {.delimiter = options.delimiter,
                 .header = options.header == CsvHeader::first_row ? format::CsvHeader::first_row
                                                                  : format::CsvHeader::none,
                 .columns = options.header == CsvHeader::none ? options.columns.size() : 0}) {
    choose_columns(file, options);
  }

  std::optional<Row> next() override {
    if (!read()) return std::nullopt;
    Row row;
    for (const auto& [column, at] : chosen_) {
      std::string_view text = fields_[at];
      if (text.empty() && column.if_empty) text = *column.if_empty;
      row.insert_or_assign(column.name, parse(column.type, text, reader_.place(at)));
    }
    return row;
  }
  std::uint64_t skip(std::uint64_t count) override {
    std::uint64_t passed = 0;
    try {
      while (passed < count && read()) ++passed;
    } catch (const DataError&) {
      ++passed;
    }
    return passed;
  }
  [[nodiscard]] bool goes_on() const noexcept override { return !ended_; }

 private:
  struct Chosen {
    CsvColumn column;
    std::size_t at;
  };

  static format::ReadBytes stream_of(const std::string& file, Compression compression) {
    std::shared_ptr<format::ByteSource> source = format::open_file(file, compression);
    return [source](std::span<std::byte> into) { return source->read(into); };
  }

  /// The next row; false behind the last one and behind one that cannot be taken apart.
  bool read() {
    if (std::exchange(ended_, true)) return false;
    ended_ = !reader_.next(fields_);
    return !ended_;
  }

  void choose_columns(const std::string& file, const CsvOptions& options) {
    const std::vector<std::string>& header = reader_.header();
    if (options.header == CsvHeader::none) {
      for (std::size_t i = 0; i < options.columns.size(); ++i) {
        if (!options.columns[i].name.empty()) chosen_.push_back({options.columns[i], i});
      }
    } else if (options.columns.empty()) {
      for (std::size_t i = 0; i < header.size(); ++i) chosen_.push_back({{.name = header[i]}, i});
    }
    if (options.header == CsvHeader::none) return;
    for (const CsvColumn& column : options.columns) {
      const auto found = std::find(header.begin(), header.end(), column.name);
      if (found == header.end()) {
        throw DataError(fmt::format("{}: no column is named \"{}\"; there are \"{}\"", file,
                                    column.name, fmt::join(header, "\", \"")),
                        Code::invalid_argument);
      }
      chosen_.push_back({column, static_cast<std::size_t>(found - header.begin())});
    }
  }

  format::CsvReader reader_;
  std::vector<Chosen> chosen_;
  std::vector<std::string_view> fields_;
  bool ended_ = false;
};

/// Finds what is wrong with the description before any file is opened.
void check_columns(const CsvOptions& options) {
  std::map<std::string, int> names;
  for (const CsvColumn& column : options.columns) {
    if (column.name.empty() && options.header == CsvHeader::none) continue;
    if (column.name.empty()) throw InvalidUsage("csv: a column without a name");
    if (++names[column.name] > 1) {
      throw InvalidUsage(fmt::format("csv: two columns are named \"{}\"", column.name));
    }
    if (!column.if_empty) continue;
    try {
      parse(column.type, *column.if_empty, {.file = "if_empty"});
    } catch (const DataError&) {
      throw InvalidUsage(fmt::format("csv: what stands for an empty \"{}\" is no number: \"{}\"",
                                     column.name, *column.if_empty));
    }
  }
  if (names.empty() && options.header == CsvHeader::none) {
    throw InvalidUsage("csv: files without a header need the names of their columns");
  }
}

/// In the order of a map: that of the names.
std::optional<ElementSpec> spec_of(const CsvOptions& options) {
  if (options.columns.empty()) return std::nullopt;
  std::map<std::string, TensorSpec> by_name;
  for (const CsvColumn& column : options.columns) {
    if (column.name.empty()) continue;
    TensorSpec spec{type_of(column.type)};
    if (column.type == CsvType::bytes) spec.shape = {kUnknownLength};
    by_name.emplace(column.name, std::move(spec));
  }
  ElementSpec all;
  for (auto& [name, spec] : by_name) all.push_back(std::move(spec));
  return all;
}

format::TokenType format_type(TokenType type) {
  switch (type) {
    case TokenType::uint8:
      return format::TokenType::uint8;
    case TokenType::uint16:
      return format::TokenType::uint16;
    case TokenType::uint32:
      return format::TokenType::uint32;
    case TokenType::int32:
      return format::TokenType::int32;
    case TokenType::int64:
      break;
  }
  return format::TokenType::int64;
}

class TokenWindowsOfFile final : public detail::FileElements<Tensor> {
 public:
  TokenWindowsOfFile(const std::string& file, const TokenOptions& options)
      : TokenWindowsOfFile(FileBytes(file), file, options) {}

  std::optional<Tensor> next() override {
    if (at_ == count_) return std::nullopt;
    Tensor window = at::empty({static_cast<std::int64_t>(windows_.length)}, at::kLong);
    file_.read(at_++ * windows_.stride, {window.data_ptr<std::int64_t>(), windows_.length});
    return window;
  }
  std::uint64_t skip(std::uint64_t count) override {
    const std::uint64_t passed = std::min(count, count_ - at_);
    at_ += passed;
    return passed;
  }
  [[nodiscard]] std::uint64_t windows() const noexcept { return count_; }

 private:
  TokenWindowsOfFile(const FileBytes& bytes, const std::string& file, const TokenOptions& options)
      : file_(bytes.read_at(), bytes.size(), format_type(options.type), file),
        windows_{.length = static_cast<std::uint64_t>(options.length),
                 .stride = static_cast<std::uint64_t>(options.stride)},
        count_(file_.count(windows_)) {}

  format::TokenFile file_;
  format::TokenWindows windows_;
  std::uint64_t count_;
  std::uint64_t at_ = 0;
};

}  // namespace

Dataset<std::map<std::string, Tensor>> csv(const Files& files, const CsvOptions& options) {
  check_columns(options);
  return Dataset<Row>(std::make_shared<detail::ReaderStage<Row>>(
      files.stage(),
      [options](const std::string& file) { return std::make_unique<CsvFile>(file, options); },
      spec_of(options), "csv"));
}

Dataset<Tensor> tokens(const Files& files, const TokenOptions& given) {
  TokenOptions options = given;
  detail::require_at_least("tokens", "length", options.length, 1);
  detail::require_at_least("tokens", "stride", options.stride, 0);
  if (options.stride == 0) options.stride = options.length;
  return Dataset<Tensor>(std::make_shared<detail::ReaderStage<Tensor>>(
      files.stage(),
      [options](const std::string& file) {
        return std::make_unique<TokenWindowsOfFile>(file, options);
      },
      ElementSpec{{at::kLong, {options.length}}},
      fmt::format("tokens({}, {} from every {}th on)", format::to_string(format_type(options.type)),
                  options.length, options.stride),
      [options](const std::string& file) {
        return static_cast<std::int64_t>(TokenWindowsOfFile(file, options).windows());
      }));
}

}  // namespace lockstep::data
