// Any bytes in the place of a roster's rows: what is accepted is sane, and is the same again after
// it was encoded.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "wire/frame.h"
#include "wire/members.h"

namespace wire = lockstep::wire;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr int kMost = 16;
  wire::Members members(kMost);
  // A good first row, so that the input may be a small difference from it.
  wire::Hello hello;
  hello.size = 1;
  for (const auto& payload : wire::encode_members(std::span(&hello, 1))) {
    if (!members.take(payload).ok()) std::abort();
  }
  if (!members.take(std::as_bytes(std::span(data, size))).ok()) return 0;
  if (members.rows().size() > kMost) std::abort();
  wire::Members again(kMost);
  for (const auto& payload : wire::encode_members(members.rows())) {
    if (payload.empty() || payload.size() > wire::kMaxControlPayload) std::abort();
    if (!again.take(payload).ok()) std::abort();
  }
  if (again.rows() != members.rows()) std::abort();
  return 0;
}
