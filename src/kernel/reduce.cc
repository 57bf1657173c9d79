#include "kernel/reduce.h"

#include <fmt/format.h>
#include <hwy/highway.h>

#include <array>
#include <cstring>
#include <limits>

#include "kernel/pass.h"
#include "kernel/program.h"

namespace lockstep::kernel {

std::vector<std::uint8_t> tree_merges(int leaves) {
  std::vector<std::uint8_t> merges(static_cast<std::size_t>(leaves));
  for (int i = 0; i < leaves; ++i) {
    merges[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(tree_merge(i, leaves));
  }
  return merges;
}

Status check_supported(Op op, DType dtype) {
  const auto refuse = [&](std::string_view instead) {
    return Status(
        ErrorKind::invalid_usage, Code::invalid_argument,
        fmt::format("{} of {} does not exist: {}", to_string(op), to_string(dtype), instead));
  };
  if (dtype == DType::boolean && op != Op::min && op != Op::max) {
    return refuse("use max for \"any\" or min for \"all\", or convert to an integer to count");
  }
  if (is_integer(dtype) && op == Op::mean) {
    return refuse("sum, then divide by the number of replicas, or convert to a floating type");
  }
  if (is_complex(dtype) && op != Op::sum && op != Op::mean) {
    return refuse(op == Op::product ? "gather the values and multiply them yourself"
                                    : "complex numbers have no order; reduce a real part or "
                                      "a magnitude instead");
  }
  return {};
}

namespace {

constexpr std::size_t kFew = 16;
/// So many need no blocks and fit any cache.
constexpr std::size_t kFewOfPair = 2048;

/// Two inputs of few elements and one target. The same bits: a NaN becomes the canonical one.
template <class T>
void add_pair(const Reduction& reduction) {
  const auto* a = static_cast<const std::byte*>(reduction.inputs[0].data);
  const auto* b = static_cast<const std::byte*>(reduction.inputs[1].data);
  auto* to = static_cast<std::byte*>(reduction.targets[0].data);
  if (reduction.count >= kFew) {
    const void* const inputs[] = {a, b};
    void* const target = to;
    constexpr Lane kLane = sizeof(T) == sizeof(float) ? Lane::f32 : Lane::f64;
    return run_pass(
        kLane, Combine::sum, 2,
        {.inputs = inputs, .targets = &target, .target_count = 1, .count = reduction.count});
  }
  // Finding the vector code takes longer than adding them.
  for (std::size_t at = 0; at < reduction.count * sizeof(T); at += sizeof(T)) {
    T x;
    T y;
    std::memcpy(&x, a + at, sizeof(T));
    std::memcpy(&y, b + at, sizeof(T));
    x += y;
    if (x != x) x = std::numeric_limits<T>::quiet_NaN();
    std::memcpy(to + at, &x, sizeof(T));
  }
}

/// A handful of elements of more inputs. The same tree, and the same bits unless the result is not
/// a number, whose bits are the vector code's to choose; false then, and nothing was written.
template <class T>
bool add_few(const Reduction& reduction) {
  std::array<std::array<T, kFew>, kFew> stack;
  std::size_t depth = 0;
  for (std::size_t i = 0; i < reduction.inputs.size(); ++i) {
    std::memcpy(stack[depth++].data(), reduction.inputs[i].data, reduction.count * sizeof(T));
    for (int merge = 0; merge < reduction.merges[i]; ++merge) {
      --depth;
      for (std::size_t k = 0; k < reduction.count; ++k) stack[depth - 1][k] += stack[depth][k];
    }
  }
  for (std::size_t k = 0; k < reduction.count; ++k) {
    if (stack[0][k] != stack[0][k]) return false;
  }
  for (const Target& target : reduction.targets) {
    std::memcpy(target.data, stack[0].data(), reduction.count * sizeof(T));
  }
  return true;
}

template <class T>
bool add_directly(const Reduction& reduction) {
  if (reduction.inputs.size() == 2 && reduction.targets.size() == 1 &&
      (reduction.count < kFew || reduction.reuse == Reuse::soon)) {
    add_pair<T>(reduction);
    return true;
  }
  return reduction.count <= kFew && reduction.inputs.size() <= kFew && add_few<T>(reduction);
}

bool add_directly(const Reduction& reduction) {
  if (reduction.count == 0 || reduction.op != Op::sum || reduction.count > kFewOfPair ||
      reduction.divisor != 1 || !reduction.weights.empty()) {
    return false;
  }
  if (reduction.dtype == DType::float32) return add_directly<float>(reduction);
  if (reduction.dtype == DType::float64) return add_directly<double>(reduction);
  return false;
}

}  // namespace

void reduce(const Reduction& reduction) {
  if (!add_directly(reduction)) Program(reduction).run();
}

void copy_around_cache(void* to, const void* from, std::size_t bytes) {
  run_pass(Lane::u8, Combine::sum, 1,
           {.inputs = &from,
            .targets = &to,
            .target_count = 1,
            .count = bytes,
            .stores = Stores::around_cache});
}

const char* target_name() {
  // Ordered from the best down, as the dispatch tables are.
  const auto targets = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(targets != 0 ? targets & -targets : HWY_STATIC_TARGET);
}

}  // namespace lockstep::kernel
