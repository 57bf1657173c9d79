// Tensors as the buffers of collectives.
#pragma once

#include "lockstep/coll/buffer.h"
#include "lockstep/tensor.h"
#include "tensor/dtype.h"

namespace lockstep::tensor {

/// The memory of a contiguous tensor.
inline coll::Buffer buffer_of(const Tensor& dense) {
  return {to_dtype(dense.scalar_type()), dense.data_ptr(), static_cast<std::size_t>(dense.numel())};
}

/// Whether the values lie in memory as they are, one after the other, in whatever order.
inline bool is_dense(const Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.is_non_overlapping_and_dense() &&
         !tensor.is_conj() && !tensor.is_neg() && !tensor._is_zerotensor();
}

/// Whether it is so, and in the order of the other one.
inline bool lies_like(const Tensor& tensor, const Tensor& other) {
  return is_dense(tensor) && tensor.device() == other.device() &&
         tensor.scalar_type() == other.scalar_type() && tensor.sizes() == other.sizes() &&
         tensor.strides() == other.strides();
}

/// The values as they lie in memory, row by row; the tensor itself where it is so already.
inline Tensor plain(const Tensor& tensor) {
  return tensor.detach().resolve_conj().resolve_neg().contiguous();
}

}  // namespace lockstep::tensor
