// Sums, means, maxima and minima of tensors over replicas: the arithmetic of every reduction inside
// one process.
//
// The components of a job, in replica order, are added as the fixed tree (kernel::tree_merges), all
// in one pass over memory, and the result is written to every output in the same pass. A batch of
// jobs is cut into pieces of equal bytes, for as many workers as there are: the bits do not depend
// on the cuts.
//
//   std::vector<ReduceJob> jobs;
//   jobs.push_back(make_job(Combine::mean, {grad0, grad1}, /*copies=*/2, memory));
//   const BatchReduce batch(jobs);
//   const int pieces = batch.pieces(2);
//   // on worker w: batch.run_piece(w, pieces);
//   jobs[0].outputs                              // are written once all pieces have run
//
// The mean divides the finished sum once. The mean of integers is floating (mean_dtype) and exact:
// they are added as int64. No result requires a gradient.
//
// Threads: run_piece() may be called for different pieces at the same time. A batch keeps its
// tensors alive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/dtype.h"
#include "lockstep/tensor.h"
#include "tensor/result_memory.h"

namespace lockstep::tensor {

enum class Combine : std::uint8_t { sum, mean, max, min };

struct ReduceJob {
  std::vector<Tensor> inputs;  // one per replica, in replica order
  /// Of the result's dtype and the inputs' shape; dense memory of their own, or one of the inputs
  /// (in place). All of the same strides.
  std::vector<Tensor> outputs;
  Combine combine = Combine::sum;
};

/// Takes `copies` outputs from `memory`, laid out as the first input if that is dense; inputs of
/// another layout are copied into that of the outputs. InvalidUsage as BatchReduce.
ReduceJob make_job(Combine combine, std::vector<Tensor> inputs, int copies, ResultMemory& memory);

/// InvalidUsage or Unsupported, as BatchReduce, if dense components cannot be combined so.
void check_dense(Combine combine, const std::vector<Tensor>& components);

class BatchReduce {
 public:
  /// InvalidUsage naming component, shape and dtype if the inputs of a job do not agree, or for
  /// a sum of bool; Unsupported for a dtype that cannot be added. Inputs of other strides than the
  /// outputs are copied.
  explicit BatchReduce(const std::vector<ReduceJob>& jobs);

  /// How many pieces are worth the while for so many workers: 1 ... workers.
  [[nodiscard]] int pieces(int workers) const noexcept;
  /// piece in [0, pieces), all with the same `pieces`. Pieces begin at whole cache lines.
  void run_piece(int piece, int pieces) const;
  void run() const { run_piece(0, 1); }

 private:
  struct Prepared {
    std::vector<Tensor> inputs;
    std::vector<Tensor> outputs;
    std::vector<std::uint8_t> merges;
    Combine combine;
    DType dtype;                 // of the inputs
    std::size_t count;           // elements
    std::size_t element_bytes;   // that one element moves: all inputs and outputs
    std::size_t first_byte = 0;  // moved by the jobs before this one
  };

  static Prepared prepare(const ReduceJob& job);
  void run_range(const Prepared& job, std::size_t begin, std::size_t end) const;
  [[nodiscard]] static std::size_t cut(const Prepared& job, std::size_t byte) noexcept;

  std::vector<Prepared> jobs_;
  std::size_t bytes_ = 0;  // that all jobs move
};

/// Sparse means COO here.
bool any_sparse(const std::vector<Tensor>& tensors);
bool all_sparse(const std::vector<Tensor>& tensors);

/// A finished sum of `count` values as their mean: integers become floating (mean_dtype), and
/// complex numbers are divided part by part.
Tensor mean_of_sum(const Tensor& sum, std::int64_t count);

/// One job, one output, on this thread. Dense components.
Tensor reduce_dense(Combine combine, std::vector<Tensor> components);

/// Components of which at least one is sparse (COO). All sparse: each component's duplicates added
/// up, then indices and values one after the other in replica order, so the result is not
/// coalesced; the mean divides the values. Mixed: the dense result. Unsupported for maximum and
/// minimum: what is not there counts as zero.
Tensor reduce_sparse(Combine combine, const std::vector<Tensor>& components);

}  // namespace lockstep::tensor
