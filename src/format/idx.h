// IDX: the array files of the MNIST family (train-images-idx3-ubyte and its kin).
//
// A file is two zero bytes, a byte for the type of the elements, a byte for the number of
// dimensions, each dimension as 32 bits, and the elements; all numbers are big endian. The first
// dimension counts the items.
//
//   IdxReader images(read, "train-images-idx3-ubyte.gz");
//   std::vector<std::byte> batch(64 * images.header().item_bytes());
//   while (const auto items = images.read(batch)) use(batch, items);   // in the host's byte order
//
// Nothing is allocated from a number in the file, except in read_rest(), which grows with the bytes
// that arrive. Errors are DataErrors with the file and the numbers that do not fit.
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

inline constexpr std::size_t kIdxPrefixBytes = 4;
inline constexpr std::size_t kIdxMaxHeaderBytes = kIdxPrefixBytes + std::size_t{255} * 4;

struct IdxHeader {
  DType type = DType::uint8;
  std::vector<std::int64_t> shape;  // at least one dimension

  [[nodiscard]] std::size_t header_bytes() const noexcept {
    return kIdxPrefixBytes + 4 * shape.size();
  }
  [[nodiscard]] std::uint64_t items() const noexcept {
    return static_cast<std::uint64_t>(shape.front());
  }
  /// Of one item: the product of the other dimensions times the element.
  [[nodiscard]] std::uint64_t item_bytes() const noexcept;
  [[nodiscard]] std::uint64_t payload_bytes() const noexcept { return items() * item_bytes(); }
};

/// The header at the front of `prefix`, which may go on behind it (kIdxMaxHeaderBytes hold any).
IdxHeader parse_idx_header(std::span<const std::byte> prefix, const std::string& file);

/// The header's bytes, for writing a file; the elements follow in big endian.
std::vector<std::byte> encode_idx_header(const IdxHeader& header);

class IdxReader {
 public:
  /// Reads the header. Where the size of the file is known, it is compared at once.
  IdxReader(ReadBytes read, std::string file, std::optional<std::uint64_t> file_bytes = {});

  [[nodiscard]] const IdxHeader& header() const noexcept { return header_; }
  [[nodiscard]] std::uint64_t items_left() const noexcept { return header_.items() - done_; }

  /// The next items, as many whole ones as `into` holds and are left; how many that were. With the
  /// last item it makes sure that nothing follows. Items without elements fill no memory: all that
  /// are left are read by one call.
  std::uint64_t read(std::span<std::byte> into);
  /// All that is left.
  std::vector<std::byte> read_rest();

 private:
  void finish(std::uint64_t items, std::uint64_t came, std::uint64_t expected);

  ReadBytes read_;
  std::string file_;
  IdxHeader header_;
  std::uint64_t done_ = 0;  // items
};

}  // namespace lockstep::format
