// NPY: one numpy array as a file (numpy.save), versions 1, 2 and 3. For writing see
// format/npy_header.h, for .npz format/zip.h.
//
//   NpyReader array(read, "x.npy");                     // or a member of an archive
//   std::vector<std::byte> values = array.read_rest();  // in the host's byte order
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

#include "format/npy_header.h"
#include "format/read_bytes.h"

namespace lockstep::format {

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
