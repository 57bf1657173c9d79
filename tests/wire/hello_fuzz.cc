// Any bytes in the place of a Hello: what is accepted is sane, can be shown in a log, and is
// encoded into the same bytes again.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "wire/hello.h"

namespace wire = lockstep::wire;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A good one, with what the input has over it.
  wire::Hello hello;
  hello.size = 1;
  std::array<std::byte, sizeof(wire::Hello)> bytes = wire::encode(hello);
  if (size < 2) return 0;
  const std::size_t at = (data[0] << 8U | data[1]) % bytes.size();
  const std::size_t length = std::min(size - 2, bytes.size() - at);
  if (length > 0) std::memcpy(bytes.data() + at, data + 2, length);
  wire::Hello read;
  if (!wire::decode(bytes, read).ok()) return 0;
  if (read.rank < 0 || read.rank >= read.size || read.replicas < 1) std::abort();
  if (wire::encode(read) != bytes) std::abort();
  for (const char c : wire::describe(read) + std::string(read.address_text())) {
    if (c < ' ' || c > '~') std::abort();
  }
  return 0;
}
