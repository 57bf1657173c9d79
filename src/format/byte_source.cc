#include "format/byte_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "format/inflate.h"
#include "lockstep/error.h"
#include "sys/posix_disk.h"

namespace lockstep::format {
namespace {

class FileSource final : public ByteSource {
 public:
  /// `bytes`: the size of the file when it was opened.
  FileSource(std::unique_ptr<sys::File> file, std::uint64_t bytes)
      : file_(std::move(file)), bytes_(bytes) {}

  std::size_t read(std::span<std::byte> into) override {
    const std::size_t got = file_->read(position_, into);
    if (got == 0 && !into.empty()) check_end(position_);
    position_ += got;
    return got;
  }

  std::uint64_t skip(std::uint64_t bytes) override {
    const std::uint64_t size = file_->size();
    const std::uint64_t left = size > position_ ? size - position_ : 0;
    const std::uint64_t skipped = std::min(bytes, left);
    if (skipped < bytes) check_end(size);
    position_ += skipped;
    return skipped;
  }

  [[nodiscard]] std::uint64_t position() const noexcept override { return position_; }
  [[nodiscard]] const std::string& name() const noexcept override { return file_->path(); }

 private:
  /// The file ends at byte `end` now. Less than it had is not its end but a loss, also where what is
  /// left is well-formed.
  void check_end(std::uint64_t end) const {
    if (end >= bytes_) return;
    throw DataError(fmt::format(
        "{} had {} bytes when it was opened and at most {} are left: it was cut while it was read; "
        "restore the file, and replace files by renaming",
        name(), bytes_, end));
  }

  std::unique_ptr<sys::File> file_;
  std::uint64_t bytes_;
  std::uint64_t position_ = 0;
};

class MemorySource final : public ByteSource {
 public:
  MemorySource(std::span<const std::byte> bytes, std::string name)
      : bytes_(bytes), name_(std::move(name)) {}

  std::size_t read(std::span<std::byte> into) override {
    const std::size_t got = std::min(into.size(), bytes_.size() - position_);
    std::ranges::copy(bytes_.subspan(position_, got), into.begin());
    position_ += got;
    return got;
  }

  [[nodiscard]] std::uint64_t position() const noexcept override { return position_; }
  [[nodiscard]] const std::string& name() const noexcept override { return name_; }

 private:
  std::span<const std::byte> bytes_;
  std::string name_;
  std::size_t position_ = 0;
};

Compression compression_of(sys::File& file, LooksPlain looks_plain) {
  std::array<std::byte, kHeadBytes> head;
  std::size_t filled = 0;
  while (filled < head.size()) {
    const std::size_t got = file.read(filled, std::span(head).subspan(filled));
    if (got == 0) break;
    filled += got;
  }
  const auto known = std::span<const std::byte>(head).first(filled);
  if (looks_plain != nullptr && looks_plain(known)) return Compression::none;
  return detect_compression(known);
}

}  // namespace

std::uint64_t ByteSource::skip(std::uint64_t bytes) {
  constexpr std::size_t kScratch = 16384;
  std::array<std::byte, kScratch> scratch;
  std::uint64_t skipped = 0;
  while (skipped < bytes) {
    const auto now = std::min<std::uint64_t>(bytes - skipped, scratch.size());
    const std::size_t got = read(std::span(scratch).first(static_cast<std::size_t>(now)));
    if (got == 0) break;
    skipped += got;
  }
  return skipped;
}

Compression detect_compression(std::span<const std::byte> head) noexcept {
  const auto at = [&](std::size_t i) { return std::to_integer<unsigned>(head[i]); };
  // The method is always deflate, and the upper bits of the flags are reserved and zero.
  if (head.size() >= 4 && at(0) == 0x1f && at(1) == 0x8b && at(2) == 8 && at(3) < 0x20) {
    return Compression::gzip;
  }
  if (head.size() >= 2 && at(0) == 0x78 && (at(1) == 0x01 || at(1) == 0x9c || at(1) == 0xda)) {
    return Compression::zlib;
  }
  return Compression::none;
}

std::unique_ptr<ByteSource> open_file(const std::string& path, Compression compression,
                                      LooksPlain looks_plain) {
  std::unique_ptr<sys::File> file = sys::PosixDisk().open(path, sys::Disk::Open::read);
  const std::uint64_t bytes = file->size();
  if (compression == Compression::automatic) compression = compression_of(*file, looks_plain);
  return decompress(std::make_unique<FileSource>(std::move(file), bytes), compression);
}

std::unique_ptr<ByteSource> memory_source(std::span<const std::byte> bytes, std::string name) {
  return std::make_unique<MemorySource>(bytes, std::move(name));
}

std::unique_ptr<ByteSource> decompress(std::unique_ptr<ByteSource> packed,
                                       Compression compression) {
  if (compression == Compression::none) return packed;
  if (compression == Compression::automatic) {
    throw InvalidUsage("the compression of " + packed->name() +
                       " is not known here: say none, gzip or zlib");
  }
  return std::make_unique<InflateSource>(std::move(packed), compression);
}

}  // namespace lockstep::format
