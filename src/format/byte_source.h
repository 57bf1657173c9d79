// ByteSource: a data file as a stream of bytes, unpacked if it is compressed.
//
//   const auto source = format::open_file("data/train.csv.gz");
//   while (const std::size_t got = source->read(block)) parse(block.first(got));
//
// A file that cannot be opened or read is a SystemError (Code::not_found if it is missing). A
// compressed stream that is cut off or damaged is a DataError that names file and byte. A file that
// ends before the length it had when it was opened is a DataError, too. Thread rule: one thread at
// a time uses a source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "lockstep/compression.h"

namespace lockstep::format {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Bytes read, maybe fewer than asked; 0 only at the end, or if none are asked.
  virtual std::size_t read(std::span<std::byte> into) = 0;
  /// Passes over up to `bytes` bytes, returns how many there were. Cheap for plain files.
  virtual std::uint64_t skip(std::uint64_t bytes);
  /// Bytes given out or skipped so far.
  [[nodiscard]] virtual std::uint64_t position() const noexcept = 0;
  /// For messages: the path, and that it is decompressed if it is.
  [[nodiscard]] virtual const std::string& name() const noexcept = 0;
};

/// Tells gzip and zlib from the first bytes of a file; none if it is neither. A zlib header that
/// reads as text ("x^") is not taken for one.
Compression detect_compression(std::span<const std::byte> head) noexcept;

/// How many first bytes are enough for detect_compression() and for a LooksPlain.
inline constexpr std::size_t kHeadBytes = 12;

/// For formats whose plain files may begin like a compressed one: true if this head is plain.
using LooksPlain = bool (*)(std::span<const std::byte> head);

std::unique_ptr<ByteSource> open_file(const std::string& path,
                                      Compression compression = Compression::automatic,
                                      LooksPlain looks_plain = nullptr);

/// The caller keeps the bytes.
std::unique_ptr<ByteSource> memory_source(std::span<const std::byte> bytes, std::string name);

/// What the packed bytes of `packed` unpack to; `packed` itself for Compression::none. The
/// compression must be known: not automatic.
std::unique_ptr<ByteSource> decompress(std::unique_ptr<ByteSource> packed, Compression compression);

}  // namespace lockstep::format
