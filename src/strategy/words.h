// Options that may be written as a word, in any case.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <string_view>

#include "lockstep/error.h"

namespace lockstep::detail {

/// Where the word stands among the names, which are in lower case; InvalidUsage saying what it is
/// not if it is none of them.
template <std::size_t N>
std::size_t index_of_word(std::string_view word, const std::array<std::string_view, N>& names,
                          std::string_view what) {
  std::string lower(word);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto found = std::find(names.begin(), names.end(), lower);
  if (found == names.end()) {
    throw InvalidUsage(
        fmt::format("Invalid {}: '{}' is none of {}", what, word, fmt::join(names, ", ")));
  }
  return static_cast<std::size_t>(found - names.begin());
}

}  // namespace lockstep::detail
