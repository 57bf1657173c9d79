#include "plan/scan.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace lockstep::plan {
namespace {

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.';
}

}  // namespace

void Scanner::skip_spaces() {
  while (offset_ < text_.size() && (text_[offset_] == ' ' || text_[offset_] == '\t')) ++offset_;
}

bool Scanner::at_end() {
  skip_spaces();
  return offset_ == text_.size();
}

bool Scanner::peek(char c) { return !at_end() && text_[offset_] == c; }

bool Scanner::accept(char c) {
  if (!peek(c)) return false;
  ++offset_;
  return true;
}

std::string_view Scanner::word() {
  skip_spaces();
  last_ = offset_;
  while (offset_ < text_.size() && is_word(text_[offset_])) ++offset_;
  return text_.substr(last_, offset_ - last_);
}

bool Scanner::size(std::uint64_t& out) {
  skip_spaces();
  last_ = offset_;
  std::uint64_t value = 0;
  const char* first = text_.data() + offset_;
  const auto [end, error] = std::from_chars(first, text_.data() + text_.size(), value);
  if (error != std::errc()) return false;
  std::size_t next = offset_ + static_cast<std::size_t>(end - first);
  int shift = 0;
  if (next < text_.size()) {
    switch (text_[next]) {
      case 'K':
      case 'k':
        shift = 10;
        break;
      case 'M':
      case 'm':
        shift = 20;
        break;
      case 'G':
      case 'g':
        shift = 30;
        break;
      default:
        break;
    }
  }
  if (shift > 0) ++next;
  if (value > UINT64_MAX >> shift || (next < text_.size() && is_word(text_[next]))) return false;
  offset_ = next;
  out = value << shift;
  return true;
}

bool Scanner::number(double& out) {
  skip_spaces();
  last_ = offset_;
  double value = 0;
  const char* first = text_.data() + offset_;
  const auto [end, error] = std::from_chars(first, text_.data() + text_.size(), value);
  if (error != std::errc() || !std::isfinite(value)) return false;
  offset_ += static_cast<std::size_t>(end - first);
  out = value;
  return true;
}

Status Scanner::expected(std::string_view what) {
  skip_spaces();
  return error(offset_, what);
}

Status Scanner::expected_instead(std::string_view what) { return error(last_, what); }

Status Scanner::error(std::size_t offset, std::string_view what) const {
  std::string_view found = text_.substr(offset);
  std::size_t length = 0;
  while (length < found.size() && is_word(found[length])) ++length;
  found = found.substr(0, length == 0 ? 1 : length);
  return {ErrorKind::invalid_usage, Code::invalid_argument,
          fmt::format("{}: at offset {}: expected {}, found {}", what_, offset, what,
                      found.empty() ? "the end" : fmt::format("\"{}\"", found))};
}

}  // namespace lockstep::plan
