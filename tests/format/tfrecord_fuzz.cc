// Any bytes as a file of records, plain and compressed: the reader gives records or a DataError,
// skipping loses nothing that reading gives, and written records come back.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "format/byte_source.h"
#include "format/record_frame.h"
#include "lockstep/error.h"
#include "lockstep/tfrecord.h"

namespace {

using lockstep::Compression;
using lockstep::CorruptRecords;
using lockstep::DataError;
using lockstep::RecordReader;
namespace format = lockstep::format;

RecordReader reader_of(std::span<const std::byte> bytes, Compression compression,
                       CorruptRecords on_corrupt) {
  return RecordReader(format::decompress(format::memory_source(bytes, "fuzz"), compression),
                      {.on_corrupt = on_corrupt});
}

/// Records until the end or the first error.
std::uint64_t good_records(RecordReader reader, bool& failed) {
  std::uint64_t records = 0;
  std::uint64_t sum = 0;
  try {
    while (const auto record = reader.next()) {
      for (const char byte : *record) sum += static_cast<unsigned char>(byte);  // touch it all
      ++records;
    }
  } catch (const DataError&) {
    failed = true;
  }
  if (records != reader.position() || sum > 255 * reader.offset()) std::abort();
  return records;
}

void read_all_ways(std::span<const std::byte> bytes, Compression compression) {
  bool failed = false;
  const std::uint64_t good =
      good_records(reader_of(bytes, compression, CorruptRecords::fail), failed);

  RecordReader tolerant = reader_of(bytes, compression, CorruptRecords::skip);
  std::uint64_t found = 0;
  while (tolerant.next()) ++found;
  const auto lost = tolerant.skipped();
  if (found < good || failed != (lost.records + lost.rests > 0)) std::abort();
  if (tolerant.position() != found + lost.records) std::abort();

  RecordReader skipping = reader_of(bytes, compression, CorruptRecords::skip);
  if (skipping.skip(~std::uint64_t{0}) != tolerant.position()) std::abort();
  if (skipping.skipped().rests != lost.rests) std::abort();
}

/// Checksums that are right let the fuzzer through to what is behind them.
std::vector<std::byte> with_good_headers(std::span<const std::byte> bytes) {
  std::vector<std::byte> fixed;
  while (!bytes.empty()) {
    const std::size_t size = std::min(std::to_integer<std::size_t>(bytes[0]) * 4, bytes.size() - 1);
    const auto header = format::record_header(size);
    fixed.insert(fixed.end(), header.begin(), header.end());
    fixed.insert(fixed.end(), bytes.begin() + 1,
                 bytes.begin() + 1 + static_cast<std::ptrdiff_t>(size));
    const auto footer = format::record_footer(bytes.subspan(1, size));
    if (size % 3 != 0) fixed.insert(fixed.end(), footer.begin(), footer.end());
    bytes = bytes.subspan(1 + size);
  }
  return fixed;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  for (const Compression compression : {Compression::none, Compression::gzip, Compression::zlib}) {
    read_all_ways(bytes, compression);
  }
  read_all_ways(with_good_headers(bytes), Compression::none);
  return 0;
}
