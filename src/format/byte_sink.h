// ByteSink: a new file that is written from front to back, packed if that is asked for.
//
// Small writes are collected. Every failure is a SystemError that names the file. What close() did
// not report is on its way to the disk; a sink that is not closed may lose its end.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "lockstep/compression.h"

namespace lockstep::format {

class ByteSink {
 public:
  virtual ~ByteSink() = default;
  virtual void write(std::span<const std::byte> bytes) = 0;
  /// Nothing may follow.
  virtual void close() = 0;
};

/// Makes the file, or empties it. The compression is none, gzip or zlib.
std::unique_ptr<ByteSink> create_file(const std::string& path, Compression compression);

}  // namespace lockstep::format
