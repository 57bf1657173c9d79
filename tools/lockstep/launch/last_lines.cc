#include "launch/last_lines.h"

namespace lockstep::tool {

void LastLines::add(std::string_view text) {
  const bool whole = text.ends_with('\n');
  if (whole) text.remove_suffix(1);
  if (!unfinished_) lines_.emplace_back();
  unfinished_ = !whole;
  std::string& line = lines_.back();
  line += text.substr(0, kLongest - line.size());
  if (lines_.size() > kLines) lines_.pop_front();
}

}  // namespace lockstep::tool
