// FileBytes: a file at random, for formats that jump about in it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "format/read_bytes.h"
#include "sys/posix_disk.h"

namespace lockstep::data {

class FileBytes {
 public:
  explicit FileBytes(const std::string& path)
      : file_(sys::PosixDisk().open(path, sys::Disk::Open::read)) {}

  [[nodiscard]] std::uint64_t size() const { return file_->size(); }
  /// Keeps the file open.
  [[nodiscard]] format::ReadAt read_at() const {
    return [file = file_](std::uint64_t offset, std::span<std::byte> into) {
      std::size_t filled = 0;
      while (filled < into.size()) {
        const std::size_t got = file->read(offset + filled, into.subspan(filled));
        if (got == 0) break;
        filled += got;
      }
      return filled;
    };
  }

 private:
  std::shared_ptr<sys::File> file_;
};

}  // namespace lockstep::data
