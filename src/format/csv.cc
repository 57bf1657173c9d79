#include "format/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "base/printable.h"
#include "lockstep/error.h"

namespace lockstep::format {
namespace {

constexpr std::size_t kFirstBuffer = std::size_t{64} << 10;
constexpr std::size_t kTextShown = 40;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

/// A field for a message: short, and on one line.
std::string shown(std::string_view text) {
  return escape_controls(text.substr(0, kTextShown)) + (text.size() > kTextShown ? "..." : "");
}

std::string described(const CsvPlace& place) {
  return fmt::format("{}:{}: column {}{}", place.file, place.line, place.column + 1,
                     place.name.empty() ? "" : fmt::format(" ({})", shown(place.name)));
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

}  // namespace

CsvReader::CsvReader(ReadBytes read, std::string file, CsvOptions options)
    : read_(std::move(read)), file_(std::move(file)), options_(options) {
  if (std::string_view("\"\r\n").find(options_.delimiter) != std::string_view::npos) {
    throw InvalidUsage(file_ + ": a quote or a line end cannot be the delimiter of CSV");
  }
  if (options_.max_row_bytes == 0) throw InvalidUsage(file_ + ": max_row_bytes is 0");
  for (const char c : {options_.delimiter, '"', '\r'})
    special_[static_cast<unsigned char>(c)] = true;
  buffer_.resize(kFirstBuffer);
  refill();
  if (std::string_view(buffer_.data(), end_).substr(0, kByteOrderMark.size()) == kByteOrderMark) {
    begin_ = kByteOrderMark.size();
  }
  columns_ = options_.columns;
  if (options_.header == CsvHeader::none) return;
  std::vector<std::string_view> names;
  if (!next_row(names)) fail(1, 0, "the file is empty, it should begin with the columns' names");
  header_.assign(names.begin(), names.end());
}

CsvPlace CsvReader::place(std::size_t column) const noexcept {
  return {.file = file_,
          .line = row_line_,
          .column = column,
          .name = column < header_.size() ? std::string_view(header_[column]) : ""};
}

bool CsvReader::next(std::vector<std::string_view>& fields) { return next_row(fields); }

bool CsvReader::next_row(std::vector<std::string_view>& fields) {
  fields.clear();
  while (const std::size_t bytes = find_row()) {
    row_line_ = next_line_;
    const std::string_view row(buffer_.data() + begin_, bytes);
    if (columns_ != 1 && (row == "\n" || row == "\r\n" || row == "\r")) {
      begin_ += bytes;
      ++next_line_;
      continue;
    }
    split(bytes, fields);
    if (columns_ == 0) {
      columns_ = fields.size();
      columns_line_ = row_line_;
    }
    if (fields.size() != columns_) {
      throw DataError(fmt::format(
          "{}:{}: {} columns, expected {}{}", file_, row_line_, fields.size(), columns_,
          columns_line_ == 0 ? std::string() : fmt::format(" as in line {}", columns_line_)));
    }
    return true;
  }
  return false;
}

std::size_t CsvReader::find_row() {
  enum class In : std::uint8_t { field_start, plain, quotes, behind_quotes };
  In in = In::field_start;
  std::size_t at = 0;  // from begin_: the buffer may move
  do {
    const std::string_view have(buffer_.data() + begin_, end_ - begin_);
    if (in == In::field_start) {
      // Most rows have no quotes: then the row ends with the line.
      const std::size_t line_end = have.find('\n', at);
      if (line_end != have.npos && have.substr(at, line_end - at).find('"') == have.npos) {
        at = line_end;
      }
    }
    for (; at < have.size(); ++at) {
      const char c = have[at];
      if (in == In::quotes) {
        if (c == '"') in = In::behind_quotes;
      } else if (c == '"' && in != In::plain) {
        in = In::quotes;  // a quote written twice leaves and enters again
      } else if (c == '\n') {
        if (at < options_.max_row_bytes) return at + 1;
        break;
      } else {
        in = c == options_.delimiter ? In::field_start : In::plain;
      }
    }
    if (at > options_.max_row_bytes || at < have.size()) {
      throw DataError(fmt::format("{}:{}: the row has more than {} bytes; is a quote not closed?",
                                  file_, next_line_, options_.max_row_bytes));
    }
  } while (refill());
  return at;
}

bool CsvReader::refill() {
  if (at_end_) return false;
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == buffer_.size()) buffer_.resize(buffer_.size() * 2);
  const auto came = read_fully(read_, std::as_writable_bytes(std::span(buffer_)).subspan(end_));
  end_ += came;
  at_end_ = end_ < buffer_.size();
  return came > 0;
}

void CsvReader::split(std::size_t bytes, std::vector<std::string_view>& fields) {
  char* at = buffer_.data() + begin_;
  char* end = at + bytes;
  begin_ += bytes;
  if (end[-1] == '\n') --end;
  if (end > at && end[-1] == '\r') --end;
  std::uint64_t line = next_line_;
  for (;;) {
    const std::size_t column = fields.size();
    char* const start = at;
    if (at < end && *at == '"') {
      // Quotes written twice become one: the field moves together within its own memory.
      char* out = at;
      const std::uint64_t opened = line;
      for (++at;; ++at) {
        if (at == end) fail(opened, column, "a quote is not closed");
        if (*at == '"' && (++at == end || *at != '"')) break;
        if (*at == '\n') ++line;
        *out++ = *at;
      }
      fields.emplace_back(start, static_cast<std::size_t>(out - start));
      if (at < end && *at != options_.delimiter) {
        fail(line, column,
             "something follows the closing quote; a quote within quotes is written "
             "twice");
      }
    } else {
      while (at < end && !special_[static_cast<unsigned char>(*at)]) ++at;
      if (at < end && *at != options_.delimiter) {
        fail(line, column,
             *at == '"' ? "a quote in a field that does not begin with one"
                        : "a CR that no LF follows; lines end with LF or CR LF");
      }
      fields.emplace_back(start, static_cast<std::size_t>(at - start));
    }
    if (at == end) break;
    ++at;  // the delimiter; a field follows it, if only an empty one
  }
  next_line_ = line + 1;
}

void CsvReader::fail(std::uint64_t line, std::size_t column, const std::string& what) const {
  throw DataError(fmt::format("{}:{}: column {}: {}", file_, line, column + 1, what));
}

template <class T>
T parse_number(std::string_view text, const CsvPlace& place) {
  std::string_view digits = trimmed(text);
  if (digits.size() > 1 && digits[0] == '+' && digits[1] != '-') digits.remove_prefix(1);
  const char* const last = digits.data() + digits.size();
  T value{};
  const auto [end, error] = std::from_chars(digits.data(), last, value);
  if (end != last || error == std::errc::invalid_argument) {
    throw DataError(fmt::format("{}: \"{}\" is no {}", described(place), shown(text),
                                std::is_integral_v<T> ? "whole number" : "number"),
                    Code::invalid_argument);
  }
  if (error == std::errc::result_out_of_range) {
    if constexpr (std::is_floating_point_v<T>) {
      // Too small is as good as zero, only too large is an error.
      long double wide = 0;
      if (std::from_chars(digits.data(), last, wide).ec == std::errc() && std::fabs(wide) < 1) {
        return static_cast<T>(wide);
      }
    }
    throw DataError(fmt::format("{}: \"{}\" does not fit into {} bits", described(place),
                                shown(text), 8 * sizeof(T)),
                    Code::out_of_range);
  }
  return value;
}

template float parse_number(std::string_view, const CsvPlace&);
template double parse_number(std::string_view, const CsvPlace&);
template std::int32_t parse_number(std::string_view, const CsvPlace&);
template std::int64_t parse_number(std::string_view, const CsvPlace&);

}  // namespace lockstep::format
