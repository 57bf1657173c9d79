// Display: what the user sees of all ranks, and the launcher's own messages between it.
//
//   const std::string prefix = display.prefix(Display::Stream::output, 2);
//   display.outlet(Display::Stream::output).put(2, prefix, "loss 0.31\n");   // "[2] loss 0.31"
//   display.say("restart {} in 1 s", 1);                          // "lockstep: restart 1 in 1 s"
//
// Thread rule: one thread.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/outlet.h"

namespace lockstep::tool {

struct DisplayOptions {
  bool prefix = true;
  bool color = true;  // on terminals only, and not if NO_COLOR is set
};

class Display {
 public:
  enum class Stream : unsigned char { output, errors };

  /// Standard output and standard error of this process. If both are one, the order is kept.
  explicit Display(DisplayOptions options);

  /// What stands before the lines of a rank.
  [[nodiscard]] std::string prefix(Stream stream, int rank);
  template <class... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    say_text(fmt::format(format, std::forward<Args>(args)...));
  }
  void say_text(std::string_view text);

  /// Lines of ranks that were given to the outlets.
  void count_line() noexcept { ++lines_; }
  [[nodiscard]] std::uint64_t lines() const noexcept { return lines_; }

  Outlet& outlet(Stream stream);
  /// Each once.
  std::vector<Outlet*> outlets();

  /// Writes what is queued, as long as it moves: gives up after two seconds without a byte.
  void flush();
  /// Says what the user did not get to see. Then flush().
  void say_dropped();

 private:
  DisplayOptions options_;
  Outlet output_;
  std::optional<Outlet> errors_;  // absent: the same as output_
  std::uint64_t lines_ = 0;
};

}  // namespace lockstep::tool
