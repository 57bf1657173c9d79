// Any bytes, in pieces of any size: an array of exactly the size the header says, or a DataError.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "bytes.h"
#include "format/idx.h"
#include "lockstep/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep::format;
  if (size == 0) return 0;
  const auto file = std::as_bytes(std::span(data, size)).subspan(1);
  try {
    IdxReader reader(in_pieces(file, 1 + data[0] % 16), "f");
    const std::uint64_t bytes = reader.header().payload_bytes();
    if (reader.read_rest().size() != bytes) std::abort();
    if (reader.header().header_bytes() + bytes != file.size()) std::abort();
  } catch (const lockstep::DataError&) {
  }
  return 0;
}
