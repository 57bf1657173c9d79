// Memory for the results of reductions. A training step makes and drops the same large tensors over
// and over; an allocator that gives their pages back in between and faults them in again costs more
// time than the sums themselves. Blocks dropped by their tensors wait here for the next of their
// size.
//
//   ResultMemory memory;
//   { const Tensor sum = memory.empty_like(gradient, at::kFloat); ... }
//   const Tensor next = memory.empty_like(gradient, at::kFloat);  // the same pages
//
// A tensor of 64 KiB or more that lies here cannot be made larger by resize_().
//
// Used and waiting blocks together never take more than the most that was in use at one time.
//
// Threads: any. Tensors may outlive the ResultMemory.
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/tensor.h"

namespace lockstep::tensor {

class ResultMemory {
 public:
  ResultMemory();
  ~ResultMemory();
  ResultMemory(const ResultMemory&) = delete;
  ResultMemory& operator=(const ResultMemory&) = delete;

  /// Of `like`'s shape and, if that is dense, its strides; on the CPU, not written.
  [[nodiscard]] Tensor empty_like(const Tensor& like, at::ScalarType dtype);

  [[nodiscard]] Tensor empty(std::int64_t elements, at::ScalarType dtype);

  /// Bytes of blocks that wait.
  [[nodiscard]] std::size_t waiting_bytes() const;

 private:
  class Blocks;
  Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype);

  std::shared_ptr<Blocks> blocks_;  // also of every tensor that lives
};

}  // namespace lockstep::tensor
