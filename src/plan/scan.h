// Scanner: reads the small texts users write in environment variables, and says where they err.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace lockstep::plan {

class Scanner {
 public:
  /// `what` names the text in messages: "algorithms".
  Scanner(std::string_view what, std::string_view text) : what_(what), text_(text) {}

  /// Skips spaces; true at the end of the text.
  bool at_end();
  /// Skips spaces; takes the character if it comes next.
  bool accept(char c);
  /// Skips spaces; whether the character comes next.
  bool peek(char c);
  /// Letters, digits, '_' and '.'; empty if something else comes next.
  std::string_view word();
  /// Takes digits with an optional K, M or G (powers of 1024). False if there are none or the
  /// number is too large.
  bool size(std::uint64_t& out);
  /// Takes a decimal number.
  bool number(double& out);

  /// InvalidUsage: the offset, what stands there and what was expected.
  [[nodiscard]] Status expected(std::string_view what);
  /// The same about the word taken last.
  [[nodiscard]] Status expected_instead(std::string_view what);

 private:
  void skip_spaces();
  [[nodiscard]] Status error(std::size_t offset, std::string_view what) const;

  std::string_view what_;
  std::string_view text_;
  std::size_t offset_ = 0;
  std::size_t last_ = 0;  // offset of the word taken last
};

}  // namespace lockstep::plan
