// NPY: one numpy array as a file (numpy.save), versions 1, 2 and 3. For .npz see format/zip.h.
//
//   NpyReader array(read, "x.npy");                     // or a member of an archive
//   std::vector<std::byte> values = array.read_rest();  // in the host's byte order
//
//   out << encode_npy_header({.type = DType::float32, .shape = {3, 4}}) << bytes of 12 floats;
//
// Elements come as they lie in the file, in Fortran order if the header says so. Nothing is
// allocated from a number in the file but the header's own text, which is bounded; read_rest()
// grows with the bytes that arrive. Errors are DataErrors with the file, the field and the byte.
//
// Thread rule: one thread a reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "format/read_bytes.h"
#include "lockstep/dtype.h"

namespace lockstep::format {

enum class ByteOrder : std::uint8_t { little, big };
enum class ArrayOrder : std::uint8_t { c, fortran };

struct NpyHeader {
  DType type = DType::float32;
  ByteOrder byte_order = ByteOrder::little;
  ArrayOrder array_order = ArrayOrder::c;
  std::vector<std::int64_t> shape;  // empty: one element
  /// Where the elements begin.
  std::size_t header_bytes = 0;

  [[nodiscard]] std::uint64_t elements() const noexcept { return payload_bytes() / size_of(type); }
  [[nodiscard]] std::uint64_t payload_bytes() const noexcept;
};

/// A header whose text is longer is refused.
inline constexpr std::size_t kNpyMaxHeaderBytes = std::size_t{1} << 20;

/// The header at the front of `prefix`, which may go on behind it.
NpyHeader parse_npy_header(std::span<const std::byte> prefix, const std::string& file);

/// What numpy.save writes before the elements. `header_bytes` is not used.
std::string encode_npy_header(const NpyHeader& header);

class NpyReader {
 public:
  /// Reads the header. Where the size of the file is known, it is compared at once.
  NpyReader(ReadBytes read, std::string file, std::optional<std::uint64_t> file_bytes = {});

  [[nodiscard]] const NpyHeader& header() const noexcept { return header_; }
  [[nodiscard]] std::uint64_t bytes_left() const noexcept {
    return header_.payload_bytes() - done_;
  }

  /// The next elements, as many whole ones as `into` holds and are left; how many bytes that were.
  /// With the last one it makes sure that nothing follows. A bool is 0 or 1, whatever the file has.
  std::uint64_t read(std::span<std::byte> into);
  /// All that is left.
  std::vector<std::byte> read_rest();

 private:
  void finish(std::span<std::byte> came, std::uint64_t expected);

  ReadBytes read_;
  std::string file_;
  NpyHeader header_;
  std::uint64_t done_ = 0;  // bytes of elements
};

}  // namespace lockstep::format
