// LastLines: the end of what a rank wrote to standard error, for the report of its failure.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace lockstep::tool {

class LastLines {
 public:
  static constexpr std::size_t kLines = 10;
  static constexpr std::size_t kLongest = 500;  // bytes kept of a line

  /// A line, or a part of one if it has no newline.
  void add(std::string_view text);
  /// Without their newlines.
  [[nodiscard]] const std::deque<std::string>& lines() const noexcept { return lines_; }

 private:
  std::deque<std::string> lines_;
  bool unfinished_ = false;
};

}  // namespace lockstep::tool
