// Any bytes as an .npy and as an .npz: arrays of exactly the size the header says, or a DataError.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "bytes.h"
#include "format/npy.h"
#include "format/zip.h"
#include "lockstep/error.h"

using namespace lockstep::format;

namespace {

constexpr std::uint64_t kMaxArray = std::uint64_t{1} << 24;  // unpacking has no other limit

void read_array(ReadBytes read, const std::string& name) {
  try {
    NpyReader reader(std::move(read), name);
    const std::uint64_t bytes = reader.header().payload_bytes();
    if (bytes <= kMaxArray && reader.read_rest().size() != bytes) std::abort();
  } catch (const lockstep::DataError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto file = std::as_bytes(std::span(data, size)).subspan(1);
  read_array(in_pieces(file, 1 + data[0] % 16), "f.npy");
  try {
    const ZipReader archive(window_of(file), file.size(), "f.npz");
    for (const ZipMember& member : archive.members()) {
      read_array(archive.open(member), archive.name_of(member));
    }
  } catch (const lockstep::DataError&) {
  }
  return 0;
}
