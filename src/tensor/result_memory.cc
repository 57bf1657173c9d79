#include "tensor/result_memory.h"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <map>
#include <new>
#include <vector>

#include "base/mutex.h"

namespace lockstep::tensor {

namespace {

constexpr std::size_t kPage = 4096;
// What is smaller the allocator keeps by itself.
constexpr std::size_t kLeast = std::size_t{64} << 10;
constexpr std::align_val_t kAlignment{64};

}  // namespace

class ResultMemory::Blocks {
 public:
  Blocks() = default;
  ~Blocks() { shrink_to(0); }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  void* take(std::size_t bytes) {
    const MutexLock lock(mutex_);
    const std::size_t used = used_ + bytes;
    const std::size_t most_used = std::max(most_used_, used);
    void* block = nullptr;
    if (const auto found = waiting_.find(bytes); found != waiting_.end()) {
      block = found->second;
      waiting_.erase(found);
      waiting_bytes_ -= bytes;
    } else {
      shrink_to(most_used - used);
      block = ::operator new(bytes, kAlignment);
    }
    used_ = used;
    most_used_ = most_used;
    return block;
  }

  void give_back(void* block, std::size_t bytes) noexcept {
    const MutexLock lock(mutex_);
    used_ -= bytes;
    try {
      waiting_.emplace(bytes, block);
      waiting_bytes_ += bytes;
    } catch (const std::bad_alloc&) {  // not even for a note of it
      ::operator delete(block, kAlignment);
    }
  }

  std::size_t waiting_bytes() {
    const MutexLock lock(mutex_);
    return waiting_bytes_;
  }

 private:
  void shrink_to(std::size_t bytes) {
    while (waiting_bytes_ > bytes) {
      const auto largest = std::prev(waiting_.end());
      waiting_bytes_ -= largest->first;
      ::operator delete(largest->second, kAlignment);
      waiting_.erase(largest);
    }
  }

  Mutex mutex_;
  std::multimap<std::size_t, void*> waiting_;  // by size
  std::size_t waiting_bytes_ = 0;
  std::size_t used_ = 0;
  std::size_t most_used_ = 0;
};

ResultMemory::ResultMemory() : blocks_(std::make_shared<Blocks>()) {}
ResultMemory::~ResultMemory() = default;

Tensor ResultMemory::empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                                   at::ScalarType dtype) {
  const auto options = at::TensorOptions(dtype).device(c10::kCPU);
  const auto elements = static_cast<std::size_t>(c10::multiply_integers(sizes));
  const std::size_t needed = elements * c10::elementSize(dtype);
  if (needed < kLeast) return at::empty_strided(sizes, strides, options);
  const std::size_t bytes = (needed + kPage - 1) / kPage * kPage;
  const auto drop = [blocks = blocks_, bytes](void* block) { blocks->give_back(block, bytes); };
  void* const block = blocks_->take(bytes);
  try {
    return at::from_blob(block, sizes, strides, drop, options);
  } catch (...) {
    blocks_->give_back(block, bytes);
    throw;
  }
}

Tensor ResultMemory::empty_like(const Tensor& like, at::ScalarType dtype) {
  if (like.is_non_overlapping_and_dense()) {
    return empty_strided(like.sizes(), like.strides(), dtype);
  }
  return empty(like.numel(), dtype).view(like.sizes());
}

Tensor ResultMemory::empty(std::int64_t elements, at::ScalarType dtype) {
  return empty_strided({elements}, {1}, dtype);
}

std::size_t ResultMemory::waiting_bytes() const { return blocks_->waiting_bytes(); }

}  // namespace lockstep::tensor
