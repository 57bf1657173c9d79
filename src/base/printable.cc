#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace lockstep {

namespace {

bool is_printable_byte(char c) noexcept { return c >= ' ' && c <= '~'; }
bool is_no_control(char c) noexcept { return static_cast<unsigned char>(c) >= ' ' && c != 0x7F; }

template <class Keep>
std::string escape_unless(std::string_view text, const Keep& keep) {
  std::string shown;
  for (const char c : text) {
    if (keep(c)) {
      shown += c;
    } else {
      fmt::format_to(std::back_inserter(shown), "\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return shown;
}

}  // namespace

bool is_printable(std::string_view text) noexcept {
  return std::all_of(text.begin(), text.end(), is_printable_byte);
}

std::string printable(std::string_view text) { return escape_unless(text, is_printable_byte); }

std::string one_line(std::string_view text, std::size_t most) {
  constexpr std::string_view kMore = "...";
  // No byte becomes less than one, so what lies beyond is not needed.
  std::string shown = printable(text.substr(0, most + 1));
  if (shown.size() > most) shown.replace(most - kMore.size(), std::string::npos, kMore);
  return shown;
}

std::string printable_lines(std::string_view text) {
  std::string shown;
  for (std::size_t begin = 0;;) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    shown += printable(text.substr(begin, end - begin));
    if (end == text.size()) return shown;
    begin = end + 1;
    shown += text.substr(begin, 1) == " " ? "\n" : "\n  ";
  }
}

std::string escape_controls(std::string_view text) { return escape_unless(text, is_no_control); }

}  // namespace lockstep
