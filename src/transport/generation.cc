#include "transport/generation.h"

#include <cstring>
#include <new>

namespace lockstep::transport {

namespace {
constexpr std::align_val_t kPage{4096};
}  // namespace

std::shared_ptr<std::byte> Generation::allocate(std::size_t bytes) {
  const std::size_t some = bytes == 0 ? 1 : bytes;
  auto* memory = static_cast<std::byte*>(::operator new(some, kPage));
  std::memset(memory, 0, some);
  return {memory, [](std::byte* data) { ::operator delete(data, kPage); }};
}

}  // namespace lockstep::transport
