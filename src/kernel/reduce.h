// The arithmetic of every reduction: N inputs become one value in one pass over memory, associated
// as the tree the caller gives, and the value is stored to M places.
//
// Values are of a dtype T; partial sums of the 16-bit types are kept in float32 (accumulator_of(T))
// and rounded once, to nearest even, where a T is stored. Integers wrap. Mean divides the finished
// sum once. Bits do not depend on the processor: no fused multiply-add, the same order on every
// target. Min and max propagate NaN; a NaN that arithmetic leaves behind is the canonical quiet
// one.
//
//   const Input inputs[] = {{a, Form::value}, {b, Form::value}, {c, Form::value}};
//   const Target targets[] = {{out, Form::value}};
//   reduce({.op = Op::sum, .dtype = DType::float32, .inputs = inputs, .merges = tree_merges(3),
//           .targets = targets, .count = n});
//
// Thread-safe: no state but the processor's features. A target may be the same memory as an input
// of the same form (in place); any other overlap is the caller's error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "lockstep/dtype.h"
#include "lockstep/op.h"

namespace lockstep::kernel {

/// value: elements of T. partial: elements of accumulator_of(T).
enum class Form : std::uint8_t { value, partial };

struct Input {
  const void* data;
  Form form = Form::value;
};

struct Target {
  void* data;
  Form form = Form::value;
};

/// Whether somebody reads the targets right after the call. If not, and they do not fit the cache
/// beside the inputs, they are written around it.
enum class Reuse : std::uint8_t { later, soon };

struct Reduction {
  Op op = Op::sum;
  DType dtype = DType::float32;
  std::span<const Input> inputs;  // at least one
  /// The association, as a stack machine: input i is pushed, then the two topmost values are
  /// combined (lower one on the left) merges[i] times. Must end with one value on the stack.
  std::span<const std::uint8_t> merges;
  std::span<const Target> targets;  // at least one
  std::size_t count = 0;            // elements
  /// Weighted sum: input i is multiplied by weights[i] (in the accumulator type) before it is
  /// added. Empty: all one. Only with Op::sum on floating and complex types.
  std::span<const double> weights = {};
  /// Divides the result once if not 1: how Op::mean finishes. 1 leaves partial results alone.
  double divisor = 1;
  Reuse reuse = Reuse::later;
  /// Bytes that this and the calls around it move, if it is one of many: together they may not fit
  /// the cache.
  std::size_t batch_bytes = 0;
};

/// Merges of the fixed tree over `leaves` equal leaves: split at the largest power of two below n,
/// which is the order of a binary counter. 3 leaves: (a+b)+c = {0, 1, 1}.
std::vector<std::uint8_t> tree_merges(int leaves);

/// Whether op exists for dtype.
constexpr bool supports(Op op, DType dtype) noexcept {
  if (dtype == DType::boolean) return op == Op::min || op == Op::max;
  if (is_complex(dtype)) return op == Op::sum || op == Op::mean;
  return op != Op::mean || !is_integer(dtype);
}

/// Whether op exists for dtype: mean of integers and bool does not (sum, then divide), bool has min
/// and max only, complex sum and mean only. InvalidUsage naming the alternative otherwise.
Status check_supported(Op op, DType dtype);

/// The caller has checked op and dtype with check_supported.
void reduce(const Reduction& reduction);

/// Copies so that the target does not stay in the cache of this core.
void copy_around_cache(void* to, const void* from, std::size_t bytes);

/// The instruction set in use, e.g. "AVX3", for reports.
const char* target_name();

}  // namespace lockstep::kernel
