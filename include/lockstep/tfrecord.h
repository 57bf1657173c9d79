// RecordReader and RecordWriter: files of records, as TensorFlow writes and reads them.
//
// A record is any bytes. In the file it is framed, little endian, by
//
//   u64 length   u32 masked CRC-32C of the length   the bytes   u32 masked CRC-32C of the bytes
//
// and the whole file may be compressed.
//
//   RecordWriter writer("train.tfrecord", {.compression = Compression::gzip});
//   for (const std::string& example : examples) writer.write(example);
//   writer.close();                                 // a full disk is reported here at the latest
//
//   RecordReader reader("train.tfrecord");          // compression is found out
//   while (const auto record = reader.next()) use(*record);
//
// Errors: a file that cannot be opened, read or written is a SystemError (Code::not_found if it is
// missing). A damaged or cut-off file is a DataError that says file, record (counted from 0) and
// byte; it is final, every later call throws it again. Thread rule: one thread at a time uses a
// reader or a writer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/compression.h"

namespace lockstep {

namespace format {
class ByteSource;
}

/// What a reader does with a record whose checksum is wrong or that is cut off.
enum class CorruptRecords {
  fail,  // DataError
  skip,  // passes over it and counts it; if its length cannot be trusted, over the rest of the file
};

struct RecordReaderOptions {
  Compression compression = Compression::automatic;
  /// Check the checksum of the data. The one of the length is always checked.
  bool check = true;
  CorruptRecords on_corrupt = CorruptRecords::fail;
  /// With CorruptRecords::skip: told what was passed over, one line each.
  std::function<void(const std::string& what)> on_skip = nullptr;
};

/// What a reader has passed over because it was corrupt.
struct SkippedRecords {
  std::uint64_t records = 0;  // single records
  std::uint64_t rests = 0;    // 1 if the rest of the file was given up
  friend bool operator==(const SkippedRecords&, const SkippedRecords&) = default;
};

class RecordReader {
 public:
  explicit RecordReader(const std::string& path, const RecordReaderOptions& options = {});
  /// From any source of plain bytes; options.compression is not looked at.
  explicit RecordReader(std::unique_ptr<format::ByteSource> source,
                        RecordReaderOptions options = {});
  ~RecordReader();
  RecordReader(RecordReader&&) noexcept;
  RecordReader& operator=(RecordReader&&) noexcept;

  /// The next record, good until the next call; nothing at the end of the file.
  std::optional<std::string_view> next();
  /// Passes over up to `count` records without looking at their data; returns how many there were.
  std::uint64_t skip(std::uint64_t count);

  /// Records passed so far, corrupt ones included: skip() with it brings a new reader to the same
  /// place.
  [[nodiscard]] std::uint64_t position() const noexcept;
  /// Where the next record begins, in bytes of the decompressed file.
  [[nodiscard]] std::uint64_t offset() const noexcept;
  [[nodiscard]] const SkippedRecords& skipped() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

struct RecordWriterOptions {
  Compression compression = Compression::none;
};

class RecordWriter {
 public:
  /// Makes the file, or empties it.
  explicit RecordWriter(const std::string& path, RecordWriterOptions options = {});
  /// Closes if that is still to do; an error is not reported: call close().
  ~RecordWriter();
  RecordWriter(RecordWriter&&) noexcept;
  RecordWriter& operator=(RecordWriter&&) noexcept;

  void write(std::string_view record);
  /// Writes what is still buffered and closes the file. A second call does nothing.
  void close();
  [[nodiscard]] std::uint64_t records() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
