// LineReader: the lines of a text file.
//
// A line ends with "\n" or "\r\n", which are not part of it; what follows the last one is a line
// too, if it is not empty. Bytes are not looked at otherwise: any encoding that keeps "\n" for
// itself will do.
//
//   LineReader lines(open_file("data/train.csv"));
//   while (const auto line = lines.next()) parse(*line);
//
// A line longer than the limit is a DataError that says file, line (counted from 1) and byte.
// Thread rule: one thread at a time uses a reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "format/window.h"

namespace lockstep::format {

struct LineOptions {
  /// Without its end. A file that is not text is found out before it fills the memory.
  std::size_t max_bytes = std::size_t{16} << 20;
};

class LineReader {
 public:
  explicit LineReader(std::unique_ptr<ByteSource> source, LineOptions options = {});

  /// The next line, good until the next call; nothing at the end.
  std::optional<std::string_view> next();
  /// Lines given so far.
  [[nodiscard]] std::uint64_t position() const noexcept { return position_; }

 private:
  /// Where in the window's bytes the next "\n" is; their size if none follows.
  std::size_t find_end();
  [[noreturn]] void fail_long() const;

  Window window_;
  LineOptions options_;
  std::uint64_t position_ = 0;
};

}  // namespace lockstep::format
