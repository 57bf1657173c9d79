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

/// The values as they lie in memory, row by row; the tensor itself where it is so already.
inline Tensor plain(const Tensor& tensor) {
  return tensor.detach().resolve_conj().resolve_neg().contiguous();
}

}  // namespace lockstep::tensor
