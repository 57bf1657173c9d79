// Window: the part of a stream that a parser looks at.
//
// Bytes are read in large blocks and parsed where they lie; only what crosses the end of a block is
// moved. The window grows for pieces larger than a block, but never beyond twice what has arrived:
// a wild length in a file costs no memory.
//
//   Window window(open_file(path));
//   while (window.ensure(12)) { parse(window.bytes().first(12)); window.consume(12); }
//
// bytes() stays where it is until the next ensure() or skip().
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "format/byte_source.h"

namespace lockstep::format {

class Window {
 public:
  /// Small enough for a core's own cache: the parser reads what the kernel has just copied.
  static constexpr std::size_t kBlock = std::size_t{256} << 10;

  explicit Window(std::unique_ptr<ByteSource> source, std::size_t block = kBlock);

  /// Makes at least `size` bytes visible; false if the stream ends before, then bytes() is its
  /// rest.
  bool ensure(std::size_t size) { return end_ - begin_ >= size || fill(size); }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return {memory_.get() + begin_, end_ - begin_};
  }
  void consume(std::size_t size) noexcept {
    assert(size <= end_ - begin_);
    begin_ += size;
  }
  /// Consumes up to `size` bytes, visible or not, and returns how many there were.
  std::uint64_t skip(std::uint64_t size);

  /// Where bytes() begins in the stream.
  [[nodiscard]] std::uint64_t offset() const noexcept { return origin_ + begin_; }
  [[nodiscard]] const std::string& name() const noexcept { return source_->name(); }

 private:
  bool fill(std::size_t size);
  /// Brings the visible bytes to the front of memory of this many bytes.
  void move_into(std::size_t capacity);

  std::unique_ptr<ByteSource> source_;
  std::size_t block_;
  std::size_t capacity_ = 0;
  std::unique_ptr<std::byte[]> memory_;
  std::uint64_t origin_ = 0;  // of the memory's first byte, in the stream
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace lockstep::format
