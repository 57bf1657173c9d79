// A pass: up to kMaxLeaves inputs of one form are read once, folded in registers as the fixed tree,
// and stored to any number of targets. Every reduction is made of passes.
//
// Private to the kernel. A pass works for any count and any alignment, touches nothing outside
// [0, count), and reads an element of every input before it writes that element of any target.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::kernel {

/// What an element looks like in memory. Complex numbers are two floats, bool is a byte.
enum class Lane : std::uint8_t { f64, f32, bf16, f16, i8, i16, i32, i64, u8 };

constexpr std::size_t size_of(Lane lane) noexcept {
  constexpr std::size_t sizes[] = {8, 4, 2, 2, 1, 2, 4, 8, 1};
  return sizes[static_cast<std::size_t>(lane)];
}
constexpr bool is_floating(Lane lane) noexcept { return lane <= Lane::f16; }
constexpr bool is_half(Lane lane) noexcept { return lane == Lane::bf16 || lane == Lane::f16; }

enum class Combine : std::uint8_t { sum, weighted_sum, product, min, max };

inline constexpr int kMaxLeaves = 16;

/// Which trees are one pass in registers; the others are put together from these, block by block in
/// the cache, which is still one pass over memory. (Each is code for every instruction set; all of
/// them would take minutes to compile.)
constexpr bool has_pass(Combine combine, bool floating, int leaves) noexcept {
  if (combine == Combine::sum && floating) return leaves <= 8 || leaves == kMaxLeaves;
  return leaves <= 4 || leaves == 8;
}

/// Where stores go. Around the cache saves reading the target's lines before they are overwritten,
/// and helps if the target does not fit the cache anyway. Without partials.
enum class Stores : std::uint8_t { cached, around_cache };

struct Pass {
  const void* const* inputs = nullptr;
  void* const* targets = nullptr;  // of the inputs' lane
  std::size_t target_count = 0;
  void* const* partials = nullptr;  // float32; 16-bit lanes only
  std::size_t partial_count = 0;
  std::size_t count = 0;
  const double* weights = nullptr;  // weighted_sum only
  double divisor = 1;               // floating sums only
  Stores stores = Stores::cached;
};

/// Requires has_pass, and at least one target.
void run_pass(Lane lane, Combine combine, int leaves, const Pass& pass);

/// One float32 input, targets of the 16-bit lane: rounds and nothing else.
void run_rounding(Lane lane, const Pass& pass);

// ---- The vector code underneath, one source file per kind of lane.

/// Runs a pass whose count is a multiple of `step`; around the cache only to targets aligned to
/// kLine.
using StepFunction = void (*)(const Pass&);

struct Steps {
  StepFunction run = nullptr;
  std::size_t step = 1;
};

inline constexpr std::size_t kLine = 64;           // bytes
inline constexpr std::size_t kMaxStep = 64;        // elements
inline constexpr std::size_t kMaxStepBytes = 128;  // of the accumulator type

/// For the processor at hand.
Steps find_float_steps(Lane lane, Combine combine, int leaves);
Steps find_half_steps(Lane lane, Combine combine, int leaves);
Steps find_integer_steps(Lane lane, Combine combine, int leaves);
Steps find_rounding_steps(Lane lane);

}  // namespace lockstep::kernel
