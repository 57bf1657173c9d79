// HeldLines: bytes of a pipe become whole lines. The beginning of a line waits for its end, but not
// longer than 200 ms: a prompt or a progress bar is to be seen.
//
//   held.add(bytes, now, [](std::string_view line) { ... });      // with their newlines
//   if (held.due() <= now) held.flush(...);                       // what there is of a line
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/function_ref.h"

namespace lockstep::tool {

class HeldLines {
 public:
  using Emit = FunctionRef<void(std::string_view)>;

  static constexpr Duration kPatience = std::chrono::milliseconds(200);
  static constexpr std::size_t kLongest = std::size_t{4} << 20;  // longer lines come in parts

  void add(std::string_view bytes, Time now, Emit emit);
  /// When the beginning of a line has waited enough; empty if there is none.
  [[nodiscard]] std::optional<Time> due() const;
  void flush(Emit emit);

 private:
  std::string held_;
  Time since_;
};

}  // namespace lockstep::tool
