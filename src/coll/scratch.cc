#include "coll/scratch.h"

#include <new>

namespace lockstep::coll {
namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

void Scratch::Free::operator()(std::byte* memory) const noexcept {
  ::operator delete(memory, kAlignment);
}

std::byte* Scratch::reserve(std::size_t bytes) {
  if (bytes > bytes_) {
    memory_.reset();
    bytes_ = 0;
    memory_.reset(static_cast<std::byte*>(::operator new(bytes, kAlignment)));
    bytes_ = bytes;
  }
  return memory_.get();
}

}  // namespace lockstep::coll
