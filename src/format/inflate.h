// InflateSource: the plain bytes of a gzip or zlib stream that another source gives.
//
// Memory is bounded by one block of input and zlib's window, whatever the stream holds. A stream
// that is cut off, damaged or followed by something else is a DataError that names the file and the
// byte in the packed file; it is thrown again by every later read.
#pragma once

#include <zlib.h>

#include <string>
#include <vector>

#include "format/byte_source.h"

namespace lockstep::format {

class InflateSource final : public ByteSource {
 public:
  InflateSource(std::unique_ptr<ByteSource> packed, Compression compression);
  ~InflateSource() override;
  InflateSource(const InflateSource&) = delete;
  InflateSource& operator=(const InflateSource&) = delete;

  std::size_t read(std::span<std::byte> into) override;
  [[nodiscard]] std::uint64_t position() const noexcept override { return position_; }
  [[nodiscard]] const std::string& name() const noexcept override { return name_; }

 private:
  enum class State : unsigned char {
    within,   // a stream that has not ended
    between,  // behind a whole stream: the end of the file, or another gzip member
    ended,
    failed,  // failure_ says why
  };

  /// Makes input available; false at the end of the packed file.
  bool refill();
  /// At the end of a stream: goes on to the next member or finds the end.
  void begin_next();
  [[noreturn]] void fail(const std::string& what);

  std::unique_ptr<ByteSource> packed_;
  Compression compression_;
  std::string name_;
  std::vector<std::byte> input_;
  z_stream stream_{};
  State state_ = State::within;
  std::uint64_t position_ = 0;
  std::string failure_;
};

}  // namespace lockstep::format
