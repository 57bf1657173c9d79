#include "format/fixed_length.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "lockstep/error.h"

namespace lockstep::format {
namespace {

constexpr std::size_t kMostBytes = std::numeric_limits<std::size_t>::max() / 4;  // sums fit

}  // namespace

FixedLengthReader::FixedLengthReader(std::unique_ptr<ByteSource> source, FixedLengthOptions options)
    : window_(std::move(source)), options_(options) {
  const std::size_t largest =
      std::max({options.header_bytes, options.record_bytes, options.footer_bytes});
  if (options.record_bytes == 0 || largest > kMostBytes) {
    throw InvalidUsage(fmt::format(
        "{}: records of {} bytes, a header of {} and a footer of {} cannot be; say record_bytes",
        window_.name(), options.record_bytes, options.header_bytes, options.footer_bytes));
  }
}

std::optional<std::string_view> FixedLengthReader::next() {
  if (!begin_record()) return std::nullopt;
  const auto record = window_.bytes().first(options_.record_bytes);
  window_.consume(record.size());
  ++position_;
  return std::string_view(reinterpret_cast<const char*>(record.data()), record.size());
}

std::uint64_t FixedLengthReader::skip(std::uint64_t count) {
  std::uint64_t skipped = 0;
  while (skipped < count && next()) ++skipped;
  return skipped;
}

bool FixedLengthReader::begin_record() {
  if (!header_passed_) {
    const std::uint64_t header = window_.skip(options_.header_bytes);
    if (header < options_.header_bytes) {
      throw DataError(fmt::format("{} has {} bytes, fewer than its header of {}; is it cut off?",
                                  window_.name(), header, options_.header_bytes));
    }
    header_passed_ = true;
  }
  // What may be the footer is no record.
  if (window_.ensure(options_.record_bytes + options_.footer_bytes)) return true;
  const std::uint64_t rest = window_.bytes().size();
  if (rest == options_.footer_bytes) return false;
  const std::uint64_t size = window_.offset() + rest;
  throw DataError(fmt::format(
      "{} has {} bytes, which is not a header of {}, whole records of {} and a footer of {}: after "
      "{} records {} bytes are left; is it cut off, or are the sizes wrong?",
      window_.name(), size, options_.header_bytes, options_.record_bytes, options_.footer_bytes,
      position_, rest));
}

}  // namespace lockstep::format
