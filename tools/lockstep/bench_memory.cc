#include "bench_memory.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace lockstep::tool {
namespace {

constexpr std::align_val_t kAlignment{64};  // that of tensors

}  // namespace

void BenchMemory::Free::operator()(std::byte* memory) const noexcept {
  ::operator delete(memory, kAlignment);
}

BenchMemory::BenchMemory(coll::Session& group, Owner owner, DType dtype, std::uint64_t count)
    : dtype_(dtype), count_(count) {
  const std::size_t bytes = std::max<std::size_t>(count * size_of(dtype), 1);
  if (owner == Owner::session) {
    shared_ = group.allocate(bytes);
  } else {
    owned_.reset(static_cast<std::byte*>(::operator new(bytes, kAlignment)));
  }
}

void BenchMemory::spoil() const { std::memset(data(), 0xee, count_ * size_of(dtype_)); }

}  // namespace lockstep::tool
