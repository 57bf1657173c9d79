#include <fmt/format.h>

#include <utility>

#include "format/record_frame.h"
#include "format/window.h"
#include "lockstep/error.h"
#include "lockstep/tfrecord.h"

namespace lockstep {
namespace {

using format::kRecordFooter;
using format::kRecordHeader;

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62;  // so that sums do not overflow

/// A record of 559,903 bytes begins as gzip does; a checksum that is right decides.
bool is_record(std::span<const std::byte> head) {
  static_assert(format::kHeadBytes >= kRecordHeader);
  return head.size() >= kRecordHeader &&
         format::record_length(head.first<kRecordHeader>()).has_value();
}

std::string_view as_text(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string ends_before(std::uint64_t length) {
  return fmt::format("the file ends before its {} bytes of data do", length);
}

}  // namespace

class RecordReader::Impl {
 public:
  Impl(std::unique_ptr<format::ByteSource> source, RecordReaderOptions options)
      : window_(std::move(source)), options_(std::move(options)) {}

  std::optional<std::string_view> next();
  std::uint64_t skip(std::uint64_t count);

  [[nodiscard]] std::uint64_t position() const noexcept { return position_; }
  [[nodiscard]] std::uint64_t offset() const noexcept { return window_.offset(); }
  [[nodiscard]] const SkippedRecords& skipped() const noexcept { return skipped_; }

 private:
  /// The length of the next record, whose header is then visible; nothing if no more come.
  std::optional<std::uint64_t> begin_record();
  /// Whether `step` says so. A compressed stream that breaks is an end with a reason.
  template <class Step>
  bool reaches(Step step);

  /// Both throw if corrupt records are to fail.
  void lose_record(const std::string& what);
  void lose_rest(const std::string& what);
  std::string corrupt(const std::string& what);

  format::Window window_;
  RecordReaderOptions options_;
  std::uint64_t position_ = 0;
  std::uint64_t begin_ = 0;  // where the current record begins
  std::string broken_;       // why the stream ended, if not by its end
  SkippedRecords skipped_;
  bool over_ = false;    // nothing more is read
  std::string failure_;  // why, if that is to be thrown
};

std::optional<std::string_view> RecordReader::Impl::next() {
  while (const auto length = begin_record()) {
    const std::uint64_t whole = kRecordHeader + *length + kRecordFooter;
    if (!reaches([&] { return window_.ensure(whole); })) {
      lose_rest(ends_before(*length));
      break;
    }
    const auto data = window_.bytes().subspan(kRecordHeader, *length);
    const auto footer = window_.bytes().subspan(kRecordHeader + *length).first<kRecordFooter>();
    const bool good = !options_.check || format::data_is_good(data, footer);
    if (!good) lose_record(fmt::format("the checksum of its {} bytes of data is wrong", *length));
    window_.consume(whole);
    ++position_;
    if (good) return as_text(data);
  }
  return std::nullopt;
}

std::uint64_t RecordReader::Impl::skip(std::uint64_t count) {
  const std::uint64_t before = position_;
  while (position_ - before < count) {
    const auto length = begin_record();
    if (!length) break;
    const std::uint64_t whole = kRecordHeader + *length + kRecordFooter;
    if (!reaches([&] { return window_.skip(whole) == whole; })) {
      lose_rest(ends_before(*length));
      break;
    }
    ++position_;
  }
  return position_ - before;
}

std::optional<std::uint64_t> RecordReader::Impl::begin_record() {
  if (over_) {
    if (!failure_.empty()) throw DataError(failure_);
    return std::nullopt;
  }
  begin_ = window_.offset();
  if (!reaches([&] { return window_.ensure(kRecordHeader); })) {
    if (broken_.empty() && window_.bytes().empty()) return std::nullopt;
    lose_rest(fmt::format("the file ends before the {} bytes of its length do", kRecordHeader));
    return std::nullopt;
  }
  const auto length = format::record_length(window_.bytes().first<kRecordHeader>());
  if (length && *length > kMostBytes) {
    lose_rest(ends_before(*length));
    return std::nullopt;
  }
  if (!length) {
    lose_rest(begin_ > 0 ? "the checksum of its length is wrong"
                         : "the checksum of its length is wrong; maybe these are no records, or "
                           "compressed ones");
  }
  return length;
}

template <class Step>
bool RecordReader::Impl::reaches(Step step) {
  try {
    return step();
  } catch (const DataError& error) {
    broken_ = error.what();
    return false;
  }
}

void RecordReader::Impl::lose_record(const std::string& what) {
  const std::string message = corrupt(what);
  ++skipped_.records;
  if (options_.on_skip) options_.on_skip(message);
}

void RecordReader::Impl::lose_rest(const std::string& what) {
  const std::string message = corrupt(broken_.empty() ? what : broken_);
  over_ = true;
  skipped_.rests = 1;
  if (options_.on_skip) options_.on_skip(message + "; the rest of the file is given up");
}

std::string RecordReader::Impl::corrupt(const std::string& what) {
  std::string message = fmt::format("{}: record {} at byte {} is corrupt: {}", window_.name(),
                                    position_, begin_, what);
  if (options_.on_corrupt == CorruptRecords::fail) {
    over_ = true;
    failure_ = message + "; restore the file, or skip corrupt records";
    throw DataError(failure_);
  }
  return message;
}

RecordReader::RecordReader(const std::string& path, const RecordReaderOptions& options)
    : RecordReader(format::open_file(path, options.compression, is_record), options) {}

RecordReader::RecordReader(std::unique_ptr<format::ByteSource> source, RecordReaderOptions options)
    : impl_(std::make_unique<Impl>(std::move(source), std::move(options))) {}

RecordReader::~RecordReader() = default;
RecordReader::RecordReader(RecordReader&&) noexcept = default;
RecordReader& RecordReader::operator=(RecordReader&&) noexcept = default;

std::optional<std::string_view> RecordReader::next() { return impl_->next(); }
std::uint64_t RecordReader::skip(std::uint64_t count) { return impl_->skip(count); }
std::uint64_t RecordReader::position() const noexcept { return impl_->position(); }
std::uint64_t RecordReader::offset() const noexcept { return impl_->offset(); }
const SkippedRecords& RecordReader::skipped() const noexcept { return impl_->skipped(); }

}  // namespace lockstep
