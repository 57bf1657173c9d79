#include "format/inflate.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "lockstep/error.h"

namespace lockstep::format {
namespace {

constexpr std::size_t kInputBytes = 65536;
constexpr int kGzipWindow = MAX_WBITS + 16;  // zlib's way to ask for a gzip header

const char* word(Compression compression) noexcept {
  return compression == Compression::gzip ? "gzip" : "zlib";
}

}  // namespace

InflateSource::InflateSource(std::unique_ptr<ByteSource> packed, Compression compression)
    : packed_(std::move(packed)),
      compression_(compression),
      name_(packed_->name() + " (decompressed)"),
      input_(kInputBytes) {
  if (::inflateInit2(&stream_, compression == Compression::gzip ? kGzipWindow : MAX_WBITS) !=
      Z_OK) {
    throw std::bad_alloc();
  }
}

InflateSource::~InflateSource() { ::inflateEnd(&stream_); }

std::size_t InflateSource::read(std::span<std::byte> into) {
  if (state_ == State::failed) throw DataError(failure_);
  constexpr std::size_t kMost = std::numeric_limits<uInt>::max();
  const std::size_t room = std::min(into.size(), kMost);
  stream_.next_out = reinterpret_cast<Bytef*>(into.data());
  stream_.avail_out = static_cast<uInt>(room);
  while (stream_.avail_out == room && room > 0) {
    if (state_ == State::between) begin_next();
    if (state_ == State::ended) break;
    const bool more = refill();
    const int result = ::inflate(&stream_, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      state_ = State::between;
    } else if (stream_.avail_out < room) {
      break;  // what came before an error is good; the next read meets the error again
    } else if (result == Z_MEM_ERROR) {
      throw std::bad_alloc();
    } else if (result == Z_BUF_ERROR && !more) {
      fail(fmt::format("ends within its {} stream", word(compression_)));
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      fail(fmt::format("is not a readable {} stream ({})", word(compression_),
                       stream_.msg != nullptr ? stream_.msg : "a dictionary is missing"));
    }
  }
  const std::size_t got = room - stream_.avail_out;
  position_ += got;
  return got;
}

bool InflateSource::refill() {
  if (stream_.avail_in > 0) return true;
  stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
  stream_.avail_in = static_cast<uInt>(packed_->read(input_));
  return stream_.avail_in > 0;
}

void InflateSource::begin_next() {
  if (!refill()) {
    state_ = State::ended;
    return;
  }
  // Anything else behind the stream would be silently lost data.
  constexpr Bytef kGzipMagic = 0x1f;
  if (compression_ != Compression::gzip || *stream_.next_in != kGzipMagic) {
    fail(fmt::format("has bytes behind the end of its {} stream", word(compression_)));
  }
  ::inflateReset(&stream_);
  state_ = State::within;
}

void InflateSource::fail(const std::string& what) {
  state_ = State::failed;
  failure_ = fmt::format("{} {}, at byte {}; copy the file anew or check its compression",
                         packed_->name(), what, packed_->position() - stream_.avail_in);
  throw DataError(failure_);
}

}  // namespace lockstep::format
