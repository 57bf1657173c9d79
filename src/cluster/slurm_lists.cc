#include "cluster/slurm_lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <set>

namespace lockstep::cluster {
namespace {

constexpr std::size_t kMaxItems = 65'536;
constexpr std::size_t kMaxName = 253;  // of a host, in bytes

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
         c == '.';
}

/// One variable, read from left to right.
class Cursor {
 public:
  Cursor(const Variable& variable, std::string_view advice)
      : variable_(variable), advice_(advice) {}

  [[nodiscard]] bool at_end() const { return next_ == variable_.text.size(); }
  [[nodiscard]] char peek() const { return at_end() ? '\0' : variable_.text[next_]; }
  [[nodiscard]] std::size_t offset() const { return next_; }

  bool accept(char c) {
    if (at_end() || peek() != c) return false;
    ++next_;
    return true;
  }
  std::string_view take(bool (*wanted)(char)) {
    const std::size_t start = next_;
    while (!at_end() && wanted(peek())) ++next_;
    return std::string_view(variable_.text).substr(start, next_ - start);
  }
  /// Digits; the text keeps their width.
  std::string_view digits() {
    const std::string_view found = take(is_digit);
    if (found.empty()) fail("a number is expected");
    if (found.size() > 18) fail_at(next_ - found.size(), "the number is too long");
    return found;
  }

  [[noreturn]] void fail(std::string_view rule) const { fail_at(next_, rule); }
  [[noreturn]] void fail_at(std::size_t offset, std::string_view rule) const {
    refuse(variable_, offset, rule, advice_);
  }

 private:
  const Variable& variable_;
  std::string_view advice_;
  std::size_t next_ = 0;
};

std::uint64_t value_of(std::string_view digits) {
  std::uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

/// "[03-04,6]" behind its bracket: the numbers with the width of the first of each range.
std::vector<std::string> bracket(Cursor& cursor) {
  std::vector<std::string> numbers;
  do {
    const std::size_t start = cursor.offset();
    const std::string_view low = cursor.digits();
    const std::string_view high = cursor.accept('-') ? cursor.digits() : low;
    const std::uint64_t first = value_of(low);
    const std::uint64_t last = value_of(high);
    if (last < first) cursor.fail_at(start, "the range ends before it begins");
    if (last - first >= kMaxItems - numbers.size()) {
      cursor.fail_at(start, fmt::format("the list has more than {} names", kMaxItems));
    }
    for (std::uint64_t number = first; number <= last; ++number) {
      numbers.push_back(fmt::format("{:0{}}", number, low.size()));
    }
  } while (cursor.accept(','));
  if (!cursor.accept(']')) {
    cursor.fail(cursor.peek() == '[' ? "brackets within brackets" : "',' or ']' is expected");
  }
  return numbers;
}

/// One name with its brackets: every combination.
std::vector<std::string> names(Cursor& cursor, std::size_t room) {
  const std::size_t start = cursor.offset();
  std::vector<std::string> all = {""};
  while (!cursor.at_end() && cursor.peek() != ',') {
    std::vector<std::string> ends;
    if (cursor.accept('[')) {
      ends = bracket(cursor);
    } else {
      ends.emplace_back(cursor.take(is_name));
      if (ends.back().empty()) cursor.fail("a letter, digit, '-', '_', '.' or '[' is expected");
    }
    if (all.size() * ends.size() > room) {
      cursor.fail_at(start, fmt::format("the list has more than {} names", kMaxItems));
    }
    std::vector<std::string> longer;
    longer.reserve(all.size() * ends.size());
    for (const std::string& name : all) {
      for (const std::string& end : ends) {
        if (name.size() + end.size() > kMaxName) {
          cursor.fail_at(start, fmt::format("a name is longer than {} bytes", kMaxName));
        }
        longer.push_back(name + end);
      }
    }
    all = std::move(longer);
  }
  if (all.front().empty()) cursor.fail("a name is expected");
  return all;
}

}  // namespace

std::vector<std::string> expand_nodes(const Variable& variable) {
  Cursor cursor(variable, "a list of nodes is like n[01-03,7],m5");
  std::vector<std::string> all;
  std::set<std::string> seen;
  do {
    const std::size_t start = cursor.offset();
    for (std::string& name : names(cursor, kMaxItems - all.size())) {
      if (!seen.insert(name).second) {
        cursor.fail_at(start, fmt::format("node {} comes twice", name));
      }
      all.push_back(std::move(name));
    }
  } while (cursor.accept(','));
  return all;
}

std::vector<int> expand_counts(const Variable& variable) {
  Cursor cursor(variable, "tasks of nodes are like 4(x3),2");
  const auto count = [&cursor](std::string_view what) {
    const std::size_t start = cursor.offset();
    const std::uint64_t value = value_of(cursor.digits());
    if (value == 0 || value > kMaxItems) {
      cursor.fail_at(start, fmt::format("{} is 1 to {}", what, kMaxItems));
    }
    return static_cast<int>(value);
  };
  std::vector<int> all;
  do {
    const std::size_t start = cursor.offset();
    const int tasks = count("the number of tasks");
    int nodes = 1;
    if (cursor.accept('(')) {
      if (!cursor.accept('x')) cursor.fail("'x' is expected");
      nodes = count("the number of nodes");
      if (!cursor.accept(')')) cursor.fail("')' is expected");
    }
    if (static_cast<std::size_t>(nodes) > kMaxItems - all.size()) {
      cursor.fail_at(start, fmt::format("there are more than {} nodes", kMaxItems));
    }
    all.insert(all.end(), static_cast<std::size_t>(nodes), tasks);
  } while (cursor.accept(','));
  if (!cursor.at_end()) cursor.fail("',', '(' or the end is expected");
  return all;
}

bool natural_less(const std::string& a, const std::string& b) {
  std::size_t i = 0;
  std::size_t j = 0;
  const auto number = [](const std::string& text, std::size_t& at) {
    const std::size_t first = std::min(text.find_first_not_of('0', at), text.size());
    std::size_t end = first;
    while (end < text.size() && is_digit(text[end])) ++end;
    at = end;
    return std::string_view(text).substr(first, end - first);
  };
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const std::string_view x = number(a, i);
      const std::string_view y = number(b, j);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
    }
  }
  const bool a_ended = i == a.size();
  const bool b_ended = j == b.size();
  return a_ended != b_ended ? a_ended : a < b;  // n1 and n01 differ by their width alone
}

}  // namespace lockstep::cluster
