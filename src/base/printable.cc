#include "base/printable.h"

#include <fmt/format.h>

#include <iterator>

namespace lockstep {

std::string printable(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    if (c >= ' ' && c <= '~') {
      shown += c;
    } else {
      fmt::format_to(std::back_inserter(shown), "\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return shown;
}

}  // namespace lockstep
