#include "launch/held_lines.h"

#include <utility>

namespace lockstep::tool {

void HeldLines::add(std::string_view bytes, Time now, Emit emit) {
  while (!bytes.empty()) {
    const auto newline = bytes.find('\n');
    const std::string_view part =
        bytes.substr(0, newline == std::string_view::npos ? newline : newline + 1);
    bytes.remove_prefix(part.size());
    if (held_.empty() && newline != std::string_view::npos) {
      emit(part);
      continue;
    }
    if (held_.empty()) since_ = now;
    held_ += part;
    if (newline != std::string_view::npos || held_.size() >= kLongest) flush(emit);
  }
}

std::optional<Time> HeldLines::due() const {
  if (held_.empty()) return std::nullopt;
  return since_ + kPatience;
}

void HeldLines::flush(Emit emit) {
  if (!held_.empty()) emit(std::exchange(held_, {}));
}

}  // namespace lockstep::tool
