#include "format/byte_sink.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "lockstep/error.h"
#include "sys/posix_disk.h"

namespace lockstep::format {
namespace {

constexpr std::size_t kBuffer = 65536;
constexpr int kGzipWindow = MAX_WBITS + 16;  // zlib's way to ask for a gzip header
constexpr int kMemoryLevel = 8;              // zlib's default

class FileSink final : public ByteSink {
 public:
  explicit FileSink(const std::string& path)
      : file_(sys::PosixDisk().open(path, sys::Disk::Open::replace)) {
    buffer_.reserve(kBuffer);
  }

  void write(std::span<const std::byte> bytes) override {
    if (buffer_.size() + bytes.size() > kBuffer) flush();
    if (bytes.size() > kBuffer) {
      put(bytes);
    } else {
      buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    }
  }

  void close() override {
    flush();
    file_->close();
  }

 private:
  void flush() {
    put(buffer_);
    buffer_.clear();
  }
  void put(std::span<const std::byte> bytes) {
    sys::write_all(*file_, written_, bytes);
    written_ += bytes.size();
  }

  std::unique_ptr<sys::File> file_;
  std::vector<std::byte> buffer_;
  std::uint64_t written_ = 0;
};

class DeflateSink final : public ByteSink {
 public:
  DeflateSink(std::unique_ptr<ByteSink> packed, Compression compression)
      : packed_(std::move(packed)), output_(kBuffer) {
    const int window = compression == Compression::gzip ? kGzipWindow : MAX_WBITS;
    if (::deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, window, kMemoryLevel,
                       Z_DEFAULT_STRATEGY) != Z_OK) {
      throw std::bad_alloc();
    }
  }
  ~DeflateSink() override { ::deflateEnd(&stream_); }
  DeflateSink(const DeflateSink&) = delete;
  DeflateSink& operator=(const DeflateSink&) = delete;

  void write(std::span<const std::byte> bytes) override {
    constexpr std::size_t kMost = std::numeric_limits<uInt>::max();
    while (!bytes.empty()) {
      const auto now = bytes.first(std::min(bytes.size(), kMost));
      // zlib only reads, whatever its signature says.
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(now.data()));
      stream_.avail_in = static_cast<uInt>(now.size());
      while (stream_.avail_in > 0) step(Z_NO_FLUSH);
      bytes = bytes.subspan(now.size());
    }
  }

  void close() override {
    while (step(Z_FINISH) != Z_STREAM_END) {
    }
    packed_->close();
  }

 private:
  int step(int flush) {
    stream_.next_out = reinterpret_cast<Bytef*>(output_.data());
    stream_.avail_out = static_cast<uInt>(output_.size());
    const int result = ::deflate(&stream_, flush);
    packed_->write(std::span(output_).first(output_.size() - stream_.avail_out));
    return result;
  }

  std::unique_ptr<ByteSink> packed_;
  std::vector<std::byte> output_;
  z_stream stream_{};
};

}  // namespace

std::unique_ptr<ByteSink> create_file(const std::string& path, Compression compression) {
  if (compression == Compression::automatic) {
    throw InvalidUsage("how to compress " + path + " is not said: none, gzip or zlib");
  }
  auto file = std::make_unique<FileSink>(path);
  if (compression == Compression::none) return file;
  return std::make_unique<DeflateSink>(std::move(file), compression);
}

}  // namespace lockstep::format
