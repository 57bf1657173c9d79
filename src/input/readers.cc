#include "lockstep/readers.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "base/log.h"
#include "format/byte_source.h"
#include "format/file_patterns.h"
#include "format/fixed_length.h"
#include "format/lines.h"
#include "input/file_bytes.h"
#include "input/file_stream.h"

namespace lockstep {

namespace detail {

bool reads_file(const Stage& stage, const std::string& file) {
  constexpr std::size_t kNamesLookedAt = 1000;  // the list may be endless
  const std::vector<StagePtr> inputs = stage.inputs();
  if (stage.role() == Stage::Role::reader) {
    const auto names = inputs.at(0)->first_strings(kNamesLookedAt);
    if (std::find(names.begin(), names.end(), file) != names.end()) return true;
  }
  return std::any_of(inputs.begin(), inputs.end(),
                     [&](const StagePtr& input) { return reads_file(*input, file); });
}

}  // namespace detail

namespace data {

namespace {

using detail::FileElements;
using Record = std::string;
using RecordStage = detail::ReaderStage<Record>;

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// Short, and the same wherever the directory is: a position can be taken along with the files.
std::string describe_files(const std::vector<std::string>& names) {
  if (names.empty()) return "files(0)";
  if (names.size() == 1) return fmt::format("files({})", base_name(names.front()));
  return fmt::format("files({}: {} to {})", names.size(), base_name(names.front()),
                     base_name(names.back()));
}

detail::StageOfPtr<std::string> list_of(std::vector<std::string> names) {
  const std::string text = describe_files(names);
  return std::make_shared<detail::ListStage<std::string>>(std::move(names), text);
}

/// The records of a format's reader, whose errors end the file.
template <class Reader>
class Records final : public FileElements<Record> {
 public:
  explicit Records(Reader reader) : reader_(std::move(reader)) {}
  std::optional<Record> next() override {
    if (ended_) return std::nullopt;
    const auto record = reader_.next();
    return record ? std::optional<Record>(*record) : std::nullopt;
  }
  std::uint64_t skip(std::uint64_t count) override {
    if (ended_) return 0;
    const std::uint64_t before = reader_.position();
    try {
      if constexpr (requires { reader_.skip(count); }) {
        return reader_.skip(count);
      } else {
        while (reader_.position() - before < count && reader_.next()) {
        }
        return reader_.position() - before;
      }
    } catch (const DataError&) {
      ended_ = true;
      return reader_.position() - before + 1;
    }
  }

 private:
  Reader reader_;
  bool ended_ = false;
};

/// A TFRecord file. The format's reader always goes on behind a corrupt record; what it tells of
/// becomes errors here, or a count. So a record that is corrupt has one place, whether it is read
/// or passed over.
class TfRecordFile final : public FileElements<Record> {
 public:
  TfRecordFile(const std::string& file, TfRecordOptions options)
      : file_(file),
        options_(std::move(options)),
        reader_(file, {.compression = options_.compression,
                       .check = options_.check,
                       .on_corrupt = CorruptRecords::skip,
                       .on_skip = [this](const std::string& what) {
                         // The reader looks for a good record up to the end of the file.
                         detail::stop_if_asked();
                         // For a warning the first is enough.
                         if (fails() || corrupt_.empty()) corrupt_.push_back(what);
                       }}) {}
  TfRecordFile(const TfRecordFile&) = delete;
  TfRecordFile& operator=(const TfRecordFile&) = delete;
  ~TfRecordFile() override { report(); }

  std::optional<Record> next() override {
    goes_on_ = false;  // if the reader itself throws
    if (corrupt_.empty() && !waiting_) waiting_ = reader_.next();
    goes_on_ = true;
    if (!corrupt_.empty()) {
      if (fails()) throw_first();
      count_corrupt();
    }
    if (!waiting_) {
      report();
      return std::nullopt;
    }
    return Record(*std::exchange(waiting_, std::nullopt));
  }

  std::uint64_t skip(std::uint64_t count) override {
    std::uint64_t passed = 0;
    // Which records are corrupt, and so have no place, is seen by reading them.
    if (!fails() && options_.check) {
      while (passed < count && next()) ++passed;
      return passed;
    }
    for (; passed < count && !corrupt_.empty(); ++passed) corrupt_.pop_front();
    if (passed < count && waiting_) {
      waiting_.reset();
      ++passed;
    }
    if (passed < count) passed += reader_.skip(count - passed);
    if (!fails()) {
      count_corrupt();
    } else if (passed < count && !corrupt_.empty()) {
      corrupt_.pop_front();
      ++passed;
    }
    return passed;
  }
  [[nodiscard]] bool goes_on() const noexcept override { return goes_on_; }

 private:
  [[nodiscard]] bool fails() const noexcept { return options_.on_corrupt == CorruptRecords::fail; }
  [[noreturn]] void throw_first() {
    const std::string what = std::move(corrupt_.front());
    corrupt_.pop_front();
    throw DataError(what + "; restore the file, or skip what is corrupt (on_corrupt)");
  }
  void count_corrupt() {
    if (first_.empty() && !corrupt_.empty()) first_ = corrupt_.front();
    corrupt_.clear();
    const SkippedRecords& all = reader_.skipped();
    if (options_.report) {
      options_.report->corrupt_records += all.records - counted_.records;
      options_.report->files_given_up += all.rests - counted_.rests;
    }
    counted_ = all;
  }
  /// One line a file, when it is done.
  void report() noexcept {
    if (first_.empty()) return;
    try {
      log_warning("input: {}: {} corrupt records were passed over{}; the first: {}", file_,
                  counted_.records, counted_.rests > 0 ? ", and the rest of the file" : "", first_);
    } catch (...) {  // no memory for a line: the report has the numbers
    }
    first_.clear();
  }

  std::string file_;
  TfRecordOptions options_;
  std::deque<std::string> corrupt_;  // told by the reader, not yet given on
  std::string first_;                // of those counted, until it is logged
  SkippedRecords counted_;
  std::optional<std::string_view> waiting_;  // behind those that are corrupt
  bool goes_on_ = true;
  RecordReader reader_;
};

Dataset<Record> records(const Files& files, RecordStage::Open open, std::string text,
                        RecordStage::Count count = nullptr) {
  return Dataset<Record>(std::make_shared<RecordStage>(files.stage(), std::move(open), std::nullopt,
                                                       std::move(text), std::move(count)));
}

/// Of a file that is not packed and has whole records.
std::int64_t count_records(const std::string& file, const FixedLengthOptions& options) {
  const std::uint64_t around = options.header_bytes + options.footer_bytes;
  const std::uint64_t bytes = FileBytes(file).size();
  if (options.compression != Compression::none || bytes < around ||
      (bytes - around) % options.record_bytes != 0) {
    return kUnknownCardinality;
  }
  return static_cast<std::int64_t>((bytes - around) / options.record_bytes);
}

}  // namespace

Dataset<std::string> files(const std::vector<std::string>& patterns, std::optional<Seed> shuffle) {
  std::vector<std::string> names = format::expand_file_patterns(patterns);
  const auto count = static_cast<std::int64_t>(names.size());
  const Dataset<std::string> sorted(list_of(std::move(names)));
  return shuffle && count > 0 ? sorted.shuffle(count, *shuffle) : sorted;
}

Dataset<std::string> files(const std::string& pattern, std::optional<Seed> shuffle) {
  return files(std::vector{pattern}, shuffle);
}

Files::Files(const char* pattern) : Files(std::string(pattern)) {}
Files::Files(const std::string& pattern) : stage_(list_of(format::expand_file_pattern(pattern))) {}
Files::Files(std::vector<std::string> names) : stage_(list_of(std::move(names))) {}
Files::Files(std::initializer_list<std::string> names)
    : stage_(list_of(std::vector<std::string>(names))) {}
Files::Files(const Dataset<std::string>& names) : stage_(names.stage()) {}

Dataset<std::string> text_lines(const Files& files, const TextLineOptions& options) {
  return records(
      files,
      [options](const std::string& file) {
        return std::make_unique<Records<format::LineReader>>(format::LineReader(
            format::open_file(file, options.compression), {.max_bytes = options.max_line_bytes}));
      },
      "text_lines");
}

Dataset<std::string> tfrecord(const Files& files, const TfRecordOptions& options) {
  return records(
      files,
      [options](const std::string& file) { return std::make_unique<TfRecordFile>(file, options); },
      options.on_corrupt == CorruptRecords::skip ? "tfrecord(corrupt records left out)"
                                                 : "tfrecord");
}

Dataset<std::string> fixed_length_records(const Files& files, const FixedLengthOptions& options) {
  detail::require_at_least("fixed_length_records", "record_bytes",
                           static_cast<std::int64_t>(options.record_bytes), 1);
  return records(
      files,
      [options](const std::string& file) {
        return std::make_unique<Records<format::FixedLengthReader>>(format::FixedLengthReader(
            format::open_file(file, options.compression), {.header_bytes = options.header_bytes,
                                                           .record_bytes = options.record_bytes,
                                                           .footer_bytes = options.footer_bytes}));
      },
      fmt::format("fixed_length_records({} bytes)", options.record_bytes),
      [options](const std::string& file) { return count_records(file, options); });
}

}  // namespace data
}  // namespace lockstep
