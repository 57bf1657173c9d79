// TokenFile: a corpus that is tokenized already, as numbers in a row and nothing else.
//
//   TokenFile corpus(read_at, file_bytes, TokenType::uint16, "train.bin");
//   std::vector<std::int64_t> window(1025);          // 1024 inputs and, one further on, targets
//   corpus.read(1024 * step, window);
//
// Tokens are little endian and come out as int64, whatever they are in the file: embeddings are
// looked up with those. Errors are DataErrors that name the file and the numbers.
//
// Thread rule: as that of the ReadAt it is given; the file itself keeps no position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "format/read_bytes.h"

namespace lockstep::format {

enum class TokenType : std::uint8_t { uint8, uint16, uint32, int32, int64 };

std::size_t size_of(TokenType type) noexcept;
std::string_view to_string(TokenType type) noexcept;

/// Windows over a row of tokens: window i begins at i * stride.
struct TokenWindows {
  std::uint64_t length = 1;
  std::uint64_t stride = 1;
};

class TokenFile {
 public:
  /// DataError if the bytes are no whole number of tokens.
  TokenFile(ReadAt read, std::uint64_t file_bytes, TokenType type, std::string file);

  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  [[nodiscard]] TokenType type() const noexcept { return type_; }

  /// Whole windows that fit; the tokens behind the last one are in none.
  [[nodiscard]] std::uint64_t count(TokenWindows windows) const;

  /// The tokens from `first` on, as many as `into` holds. InvalidUsage if the file has fewer;
  /// DataError if it has become shorter since.
  void read(std::uint64_t first, std::span<std::int64_t> into) const;

 private:
  ReadAt read_;
  std::uint64_t count_;
  TokenType type_;
  std::string file_;
};

}  // namespace lockstep::format
