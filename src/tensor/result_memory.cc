#include "tensor/result_memory.h"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/accumulate.h>

#include <new>

namespace lockstep::tensor {

namespace {

constexpr std::size_t kPage = 4096;
// What is smaller the allocator keeps by itself.
constexpr std::size_t kLeast = std::size_t{64} << 10;
constexpr std::align_val_t kAlignment{64};

std::shared_ptr<void> aligned_memory(std::size_t bytes) {
  return {::operator new(bytes, kAlignment),
          [](void* block) { ::operator delete(block, kAlignment); }};
}

}  // namespace

ResultMemory::ResultMemory() : blocks_(std::make_shared<Blocks>(aligned_memory)) {}
ResultMemory::~ResultMemory() = default;

Tensor ResultMemory::empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                                   at::ScalarType dtype) {
  const auto options = at::TensorOptions(dtype).device(c10::kCPU);
  const auto elements = static_cast<std::size_t>(c10::multiply_integers(sizes));
  const std::size_t needed = elements * c10::elementSize(dtype);
  if (needed < kLeast) return at::empty_strided(sizes, strides, options);
  const std::size_t bytes = (needed + kPage - 1) / kPage * kPage;
  const std::shared_ptr<void> block = blocks_->take(bytes);
  return at::from_blob(
      block.get(), sizes, strides, [block](void*) {}, options);
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
