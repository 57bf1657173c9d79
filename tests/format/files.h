// Small files and streams for the tests of src/format.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "format/byte_source.h"
#include "tests/sys/temporary_directory.h"

namespace lockstep::format {

inline void write_file(const std::string& path, std::string_view content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

inline std::string read_file(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

/// The test keeps the text.
inline std::unique_ptr<ByteSource> source_of(std::string_view text, std::string name = "memory") {
  return memory_source(std::as_bytes(std::span(text)), std::move(name));
}

/// Gives at most `piece` bytes at a time, as pipes and decompressors do.
class Pieces final : public ByteSource {
 public:
  Pieces(std::unique_ptr<ByteSource> whole, std::size_t piece)
      : whole_(std::move(whole)), piece_(piece) {}
  std::size_t read(std::span<std::byte> into) override {
    return whole_->read(into.first(std::min(piece_, into.size())));
  }
  [[nodiscard]] std::uint64_t position() const noexcept override { return whole_->position(); }
  [[nodiscard]] const std::string& name() const noexcept override { return whole_->name(); }

 private:
  std::unique_ptr<ByteSource> whole_;
  std::size_t piece_;
};

inline std::string read_to_end(ByteSource& source, std::size_t piece = 1000) {
  std::string all;
  std::vector<std::byte> block(piece);
  while (const std::size_t got = source.read(block)) {
    all.append(reinterpret_cast<const char*>(block.data()), got);
  }
  return all;
}

/// One gzip member or zlib stream.
inline std::string packed(std::string_view text, Compression compression) {
  z_stream stream{};
  constexpr int kMemoryLevel = 8;
  const int window = compression == Compression::gzip ? MAX_WBITS + 16 : MAX_WBITS;
  ::deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, window, kMemoryLevel,
                 Z_DEFAULT_STRATEGY);
  std::string out(::deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(::deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  ::deflateEnd(&stream);
  return out;
}

/// Every number differs from its neighbours, so that lost or moved bytes show.
inline std::string sample_text(std::size_t size) {
  std::string text;
  for (std::size_t i = 0; text.size() < size; ++i) text += std::to_string(i * 7919) + " ";
  text.resize(size);
  return text;
}

}  // namespace lockstep::format
