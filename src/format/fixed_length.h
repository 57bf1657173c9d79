// FixedLengthReader: a file of records that all have the same size, maybe with something before the
// first and behind the last.
//
//   FixedLengthReader records(open_file("cifar-10/data_batch_1.bin", Compression::none),
//                             {.record_bytes = 3073});
//   while (const auto record = records.next()) use(*record);
//
// Such a file says nothing about itself: its compression is better said than guessed. A file whose
// size does not fit is a DataError with the sizes, thrown when its end is reached. Thread rule: one
// thread at a time uses a reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "format/window.h"

namespace lockstep::format {

struct FixedLengthOptions {
  std::size_t header_bytes = 0;
  std::size_t record_bytes = 0;  // must be said
  std::size_t footer_bytes = 0;
};

class FixedLengthReader {
 public:
  /// InvalidUsage if the sizes make no sense.
  FixedLengthReader(std::unique_ptr<ByteSource> source, FixedLengthOptions options);

  /// The next record, good until the next call; nothing at the end.
  std::optional<std::string_view> next();
  /// Passes over up to `count` records; returns how many there were.
  std::uint64_t skip(std::uint64_t count);
  /// Records passed so far.
  [[nodiscard]] std::uint64_t position() const noexcept { return position_; }

 private:
  /// Whether another record is there, then it is visible.
  bool begin_record();

  Window window_;
  FixedLengthOptions options_;
  bool header_passed_ = false;
  std::uint64_t position_ = 0;
};

}  // namespace lockstep::format
