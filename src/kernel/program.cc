#include "kernel/program.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cassert>

namespace lockstep::kernel {
namespace {

// Small enough to stay in the first-level cache beside the inputs; blocks of at least 64 lanes.
constexpr std::size_t kScratchBytes = std::size_t{16} << 10;
constexpr std::size_t kMinBlock = 64;
constexpr std::size_t kInlineStack = 64;

Lane lane_of(DType type) {
  switch (type) {
    case DType::float64:
    case DType::complex128:
      return Lane::f64;
    case DType::float32:
    case DType::complex64:
      return Lane::f32;
    case DType::float16:
      return Lane::f16;
    case DType::bfloat16:
      return Lane::bf16;
    case DType::int8:
      return Lane::i8;
    case DType::int16:
      return Lane::i16;
    case DType::int32:
      return Lane::i32;
    case DType::int64:
      return Lane::i64;
    case DType::uint8:
    case DType::boolean:
      break;
  }
  return Lane::u8;
}

Combine combine_of(Op op) {
  switch (op) {
    case Op::product:
      return Combine::product;
    case Op::min:
      return Combine::min;
    case Op::max:
      return Combine::max;
    case Op::sum:
    case Op::mean:
      break;
  }
  return Combine::sum;
}

/// Bytes of the second-level cache, a core's own on most processors.
std::size_t private_cache_bytes() {
  static const std::size_t known = [] {
    const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return bytes > 0 ? static_cast<std::size_t>(bytes) : std::size_t{1} << 20;
  }();
  return known;
}

int trailing_zeros(int n) { return std::countr_zero(static_cast<unsigned>(n)); }

}  // namespace

int tree_merge(int leaf, int leaves) noexcept {
  // A binary counter carries after every leaf; what is left over is folded after the last one.
  const int carries = trailing_zeros(leaf + 1);
  return leaf + 1 < leaves ? carries : carries + std::popcount(static_cast<unsigned>(leaves)) - 1;
}

Program::Program(const Reduction& reduction)
    : reduction_(reduction),
      lane_(lane_of(reduction.dtype)),
      partial_lane_(is_half(lane_) ? Lane::f32 : lane_),
      leaf_combine_(reduction.weights.empty() ? combine_of(reduction.op) : Combine::weighted_sum),
      combine_(combine_of(reduction.op)),
      count_(is_complex(reduction.dtype) ? 2 * reduction.count : reduction.count),
      targets_(reduction.targets.size()),
      moved_(reduction.targets.size() + 1) {
  assert(!reduction.inputs.empty() && reduction.merges.size() == reduction.inputs.size());
  assert(!reduction.targets.empty());
  assert(reduction.weights.empty() || reduction.weights.size() == reduction.inputs.size());
  const std::size_t all = reduction.targets.size();
  for (const Target& target : reduction.targets) {
    auto* data = static_cast<std::byte*>(target.data);
    if (is_half(lane_) && target.form == Form::partial) {
      targets_[all - ++partials_] = data;
    } else {
      targets_[values_++] = data;
    }
  }
}

Lane Program::lane_of_input(int i) const noexcept {
  return reduction_.inputs[i].form == Form::value ? lane_ : partial_lane_;
}

bool Program::same_form(int a, int b) const noexcept {
  return lane_of_input(a) == lane_of_input(b);
}

bool Program::is_one_pass() const noexcept {
  if (!has_pass(leaf_combine_, is_floating(lane_), inputs())) return false;
  // Float32 partials of a 16-bit reduction are not rounded by the pass that adds them.
  if (lane_of_input(0) != lane_ && values_ != 0) return false;
  for (int i = 0; i < inputs(); ++i) {
    if (!same_form(0, i) || reduction_.merges[i] != tree_merge(i, inputs())) return false;
  }
  return true;
}

bool Program::outgrows_cache() const noexcept {
  if (partials_ != 0 || lane_of_input(0) != lane_ || reduction_.reuse == Reuse::soon) return false;
  const std::size_t own =
      count_ * size_of(lane_) * (reduction_.inputs.size() + reduction_.targets.size());
  // Several targets are copies for several threads, and each reads its own soon, from the cache
  // that the cores share, unless all of it is large by any measure.
  const std::size_t fitting = reduction_.targets.size() == 1 ? 1 : 16;
  if (std::max(own, reduction_.batch_bytes) <= fitting * private_cache_bytes()) return false;
  // In place the line is in the cache already.
  for (const Input& input : reduction_.inputs) {
    for (const Target& target : reduction_.targets) {
      if (input.data == target.data) return false;
    }
  }
  return true;
}

Program::Group Program::group_at(int first) const noexcept {
  // The largest complete subtree that starts here and is a pass.
  Group best{1, reduction_.merges[first]};
  int matched = 0;  // inputs after which the merges went on as the subtree's do
  for (int size = 2; has_pass(leaf_combine_, is_floating(lane_), size) && first + size <= inputs();
       size *= 2) {
    while (matched < size - 1 && same_form(first, first + matched + 1) &&
           reduction_.merges[first + matched] == trailing_zeros(matched + 1)) {
      ++matched;
    }
    const int left = reduction_.merges[first + size - 1] - trailing_zeros(size);
    if (matched < size - 1 || left < 0) break;
    best = {size, left};
  }
  return best;
}

std::size_t Program::stack_depth() const noexcept {
  int depth = 0;
  int deepest = 0;
  for (int i = 0; i < inputs();) {
    const Group group = group_at(i);
    deepest = std::max(deepest, ++depth);
    depth -= group.merges;
    assert(depth >= 1 && "a merge needs two values on the stack");
    i += group.leaves;
  }
  assert(depth == 1 && "the merges must leave one value on the stack");
  return static_cast<std::size_t>(deepest);
}

void Program::run() {
  if (count_ == 0) return;
  if (is_one_pass()) {
    const void* data[kMaxLeaves];
    for (int i = 0; i < inputs(); ++i) data[i] = reduction_.inputs[i].data;
    fold_into_targets({lane_of_input(0), leaf_combine_, inputs(), data, reduction_.weights.data()},
                      0, count_, outgrows_cache() ? Stores::around_cache : Stores::cached);
    return;
  }

  slots_ = stack_depth() + 1;
  const std::size_t lane_bytes = size_of(partial_lane_);
  const std::size_t fitting = kScratchBytes / slots_ / lane_bytes / kMinBlock * kMinBlock;
  const std::size_t block = std::max(kMinBlock, fitting);
  slot_bytes_ = block * lane_bytes;
  // A cache line of slack for the alignment that vectors like.
  SmallArray<std::byte, kScratchBytes + 64> scratch(slots_ * slot_bytes_ + 64);
  void* aligned = scratch.data();
  std::size_t space = slots_ * slot_bytes_ + 64;
  scratch_ = static_cast<std::byte*>(std::align(64, slots_ * slot_bytes_, aligned, space));
  SmallArray<const void*, kInlineStack> stack(slots_);
  stack_ = stack.data();

  for (std::size_t begin = 0; begin < count_; begin += block) {
    run_block(begin, std::min(block, count_ - begin));
  }
}

void Program::run_block(std::size_t begin, std::size_t count) {
  std::size_t depth = 0;
  for (int i = 0; i < inputs();) {
    const Group group = group_at(i);
    const bool last = i + group.leaves == inputs();
    const Lane lane = lane_of_input(i);
    const void* data[kMaxLeaves];
    for (int k = 0; k < group.leaves; ++k) {
      data[k] =
          static_cast<const std::byte*>(reduction_.inputs[i + k].data) + begin * size_of(lane);
    }
    const double* weights = reduction_.weights.empty() ? nullptr : &reduction_.weights[i];
    const Operands leaves{lane, leaf_combine_, group.leaves, data, weights};
    if (last && group.merges == 0) return fold_into_targets(leaves, begin, count);
    if (group.leaves == 1 && lane == partial_lane_ && weights == nullptr) {
      stack_[depth] = data[0];  // nothing to compute: it is merged from where it lies
    } else {
      fold_into(slot(depth), leaves, count);
      stack_[depth] = slot(depth);
    }
    ++depth;
    for (int m = 0; m < group.merges; ++m, --depth) {
      const Operands two{partial_lane_, combine_, 2, stack_ + depth - 2, nullptr};
      if (last && m + 1 == group.merges) return fold_into_targets(two, begin, count);
      fold_into(slot(depth - 2), two, count);
      stack_[depth - 2] = slot(depth - 2);
    }
    i += group.leaves;
  }
}

void Program::fold_into(void* slot, const Operands& operands, std::size_t count) const {
  Pass pass{.inputs = operands.inputs, .count = count, .weights = operands.weights};
  if (is_half(operands.lane)) {
    pass.partials = &slot;
    pass.partial_count = 1;
  } else {
    pass.targets = &slot;
    pass.target_count = 1;
  }
  run_pass(operands.lane, operands.combine, operands.leaves, pass);
}

void Program::fold_into_targets(const Operands& operands, std::size_t begin, std::size_t count,
                                Stores stores) {
  for (std::size_t t = 0; t < values_ + partials_; ++t) {
    moved_[t] = targets_[t] + begin * size_of(t < values_ ? lane_ : partial_lane_);
  }
  Pass pass{.inputs = operands.inputs,
            .targets = moved_.data(),
            .target_count = values_,
            .partials = moved_.data() + values_,
            .partial_count = partials_,
            .count = count,
            .weights = operands.weights,
            .divisor = reduction_.divisor,
            .stores = stores};
  const auto fold = [&] { run_pass(operands.lane, operands.combine, operands.leaves, pass); };
  if (operands.lane == lane_) return fold();

  // Float32 in, and some targets want 16 bits: those get the result from a scratch block.
  pass.targets = moved_.data() + values_;
  pass.target_count = partials_;
  pass.partial_count = 0;
  if (values_ == 0) return fold();
  void* result = slot(slots_ - 1);
  moved_[values_ + partials_] = result;
  ++pass.target_count;
  fold();
  const void* rounded = result;
  run_rounding(
      lane_,
      {.inputs = &rounded, .targets = moved_.data(), .target_count = values_, .count = count});
}

}  // namespace lockstep::kernel
