// Work on a tensor's memory, divided among libtorch's own threads.
//
//   in_parts(parameter, [&](std::size_t begin, std::size_t end) { step(memory, begin, end); });
//
// Not at::parallel_for: that is a template whose OpenMP pragma is compiled where it is used, so in
// a target without -fopenmp it is a plain loop, and with another compiler's OpenMP it starts a
// second pool of threads. TensorIterator::for_each is compiled in libtorch and uses the pool that
// libtorch's operators use.
#pragma once

#include <cstddef>

#include "base/function_ref.h"
#include "lockstep/tensor.h"

namespace lockstep::tensor {

/// Under ThreadSanitizer the calling thread takes the whole tensor: neither libtorch nor OpenMP is
/// instrumented, so every hand-over between their threads looks like a race.
#ifdef __SANITIZE_THREAD__
inline constexpr bool kPartsAreSerial = true;
#else
inline constexpr bool kPartsAreSerial = false;
#endif

/// Calls work(begin, end) for ranges of elements that together are the whole tensor, in the order
/// in which they lie in memory, and returns when all calls have returned.
///
/// Uses as many threads as libtorch has for an operator called from this thread
/// (at::get_num_threads()), the calling thread among them. A tensor of at most
/// at::internal::GRAIN_SIZE elements is one part, done by the calling thread, as in libtorch. An
/// exception of `work` is thrown again here, after the other parts have ended.
///
/// The tensor must be dense (is_non_overlapping_and_dense) and on the CPU.
void in_parts(const Tensor& tensor, FunctionRef<void(std::size_t begin, std::size_t end)> work);

}  // namespace lockstep::tensor
