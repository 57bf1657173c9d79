// Readers: datasets over files.
//
//   auto train = data::tfrecord("data/train-*.tfrecord")
//                    .map(data::parse_example({fixed_float("image", {28, 28}),
//                                              fixed_int64("label")}), Parallel{2})
//                    .shuffle(10'000, Seed{7})
//                    .batch(GlobalBatch{256});
//
// Each reader is one stage over a dataset of file names, so that a distributed dataset can deal the
// files out to its workers. Files are read one after the other, one open at a time; none is opened
// before its first element is asked for. Packed files (gzip, zlib) are told from their first bytes.
//
// Errors: a file that is missing or cannot be read is a SystemError, one that is damaged or cut off
// a DataError; both name the file, and where in it. They come out at their place in the stream. The
// next element asked for is the next one that can be read: of the same file if only a record's
// checksum or the number in a row was bad, else of the next file. An error counts as one element
// where elements are passed over (a position that is gone back to, skip(), shard()), but a file
// that is missing then is an error at once.
//
// Threads: as for every dataset.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/arrays.h"
#include "lockstep/compression.h"
#include "lockstep/dataset.h"
#include "lockstep/example_parser.h"
#include "lockstep/tfrecord.h"

namespace lockstep::data {

/// Names of the files that match the patterns, which are looked up now: sorted, none twice. With a
/// seed in another order each iteration. A pattern is a name, a shell pattern (*, ?, [a-z]) or
/// "name@16" for name-00000-of-00016 and its kin. SystemError naming a pattern that matches
/// nothing.
Dataset<std::string> files(const std::vector<std::string>& patterns,
                           std::optional<Seed> shuffle = std::nullopt);
Dataset<std::string> files(const std::string& pattern, std::optional<Seed> shuffle = std::nullopt);

/// What a reader is given: a pattern as for files(), a list of names as they are, in their order,
/// or a dataset of names.
class Files {
 public:
  Files(const char* pattern);                       // NOLINT(google-explicit-constructor)
  Files(const std::string& pattern);                // NOLINT(google-explicit-constructor)
  Files(std::vector<std::string> names);            // NOLINT(google-explicit-constructor)
  Files(std::initializer_list<std::string> names);  // NOLINT(google-explicit-constructor)
  Files(const Dataset<std::string>& names);         // NOLINT(google-explicit-constructor)

  [[nodiscard]] const detail::StageOfPtr<std::string>& stage() const noexcept { return stage_; }

 private:
  detail::StageOfPtr<std::string> stage_;
};

// --- records of bytes ---------------------------------------------------------------------------

struct TextLineOptions {
  Compression compression = Compression::automatic;
  /// A longer line is an error: the file is not text.
  std::size_t max_line_bytes = std::size_t{16} << 20;
};
/// Lines without their ends, "\n" or "\r\n".
Dataset<std::string> text_lines(const Files& files, const TextLineOptions& options = {});

/// What readers have passed over, in all iterations so far. Several readers may share one; it may
/// be looked at while they run.
struct ReadReport {
  std::atomic<std::uint64_t> corrupt_records = 0;
  std::atomic<std::uint64_t> files_given_up = 0;  // from a record on whose length is not known
};

struct TfRecordOptions {
  Compression compression = Compression::automatic;
  /// With skip, records that are corrupt are passed over and counted; one warning a file is logged.
  CorruptRecords on_corrupt = CorruptRecords::fail;
  /// Check the checksum of the data. The one of the length is always checked.
  bool check = true;
  std::shared_ptr<ReadReport> report = nullptr;
};
/// The records of TFRecord files.
Dataset<std::string> tfrecord(const Files& files, const TfRecordOptions& options = {});

struct FixedLengthOptions {
  std::size_t record_bytes = 0;  // must be said
  std::size_t header_bytes = 0;
  std::size_t footer_bytes = 0;
  /// Such files say nothing about themselves, so it is not guessed.
  Compression compression = Compression::none;
};
/// Records of one size, between a header and a footer.
Dataset<std::string> fixed_length_records(const Files& files, const FixedLengthOptions& options);

// --- rows and tokens ----------------------------------------------------------------------------

enum class CsvType {
  float32,
  int64,
  bytes,  // the text as uint8[length]
};
enum class CsvHeader { first_row, none };

struct CsvColumn {
  std::string name;
  CsvType type = CsvType::float32;
  /// Stands for an empty field; without it an empty number is an error.
  std::optional<std::string> if_empty = std::nullopt;
};

struct CsvOptions {
  /// Files with a header: the columns to give, by name; none means all, as float32. Files without
  /// one: all columns in their order; those without a name are left out.
  std::vector<CsvColumn> columns = {};
  CsvHeader header = CsvHeader::first_row;
  char delimiter = ',';
  Compression compression = Compression::automatic;
};
/// A row as scalars by column.
Dataset<std::map<std::string, Tensor>> csv(const Files& files, const CsvOptions& options = {});

enum class TokenType { uint8, uint16, uint32, int32, int64 };

struct TokenOptions {
  TokenType type = TokenType::uint16;
  std::int64_t length = 0;  // of a window; must be said
  std::int64_t stride = 0;  // from one window to the next; 0: the length
};
/// Windows over files of tokens, little endian and nothing else, as int64[length]. A window lies
/// within one file.
Dataset<Tensor> tokens(const Files& files, const TokenOptions& options);

}  // namespace lockstep::data
