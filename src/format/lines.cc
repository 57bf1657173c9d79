#include "format/lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "lockstep/error.h"

namespace lockstep::format {

LineReader::LineReader(std::unique_ptr<ByteSource> source, LineOptions options)
    : window_(std::move(source)), options_(options) {
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max() / 4;
  options_.max_bytes = std::min(options.max_bytes, kMost);
}

std::optional<std::string_view> LineReader::next() {
  const std::size_t end = find_end();
  const auto bytes = window_.bytes();
  if (bytes.empty()) return std::nullopt;
  const bool ended = end < bytes.size();
  std::string_view line(reinterpret_cast<const char*>(bytes.data()), end);
  if (ended && line.ends_with('\r')) line.remove_suffix(1);
  if (line.size() > options_.max_bytes) fail_long();
  window_.consume(ended ? end + 1 : end);
  ++position_;
  return line;
}

std::size_t LineReader::find_end() {
  std::size_t searched = 0;
  do {
    const auto fresh = window_.bytes().subspan(searched);
    const void* end = fresh.empty() ? nullptr : std::memchr(fresh.data(), '\n', fresh.size());
    if (end != nullptr) {
      return searched + static_cast<std::size_t>(static_cast<const std::byte*>(end) - fresh.data());
    }
    searched = window_.bytes().size();
    if (searched > options_.max_bytes + 1) fail_long();  // even if the last byte is a "\r"
  } while (window_.ensure(searched + 1));
  return searched;
}

void LineReader::fail_long() const {
  throw DataError(
      fmt::format("{}: line {} at byte {} is longer than {} bytes; is it text? if it is, "
                  "raise max_bytes",
                  window_.name(), position_ + 1, window_.offset(), options_.max_bytes));
}

}  // namespace lockstep::format
