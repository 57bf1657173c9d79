#include "kernel/round.h"

#include <bit>
#include <cstdint>

namespace lockstep::kernel {
namespace {

constexpr std::uint32_t kSign = 0x8000'0000;
constexpr std::uint32_t kInfinity = 0x7F80'0000;
constexpr std::uint32_t kQuiet = 0x0040'0000;

}  // namespace

float to_float(BFloat16 value) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

BFloat16 to_bfloat16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & ~kSign) > kInfinity) return {static_cast<std::uint16_t>((bits | kQuiet) >> 16)};
  // Half of the last place that stays, less one if that place is even: a tie goes to even. A carry
  // into the exponent is right, up to infinity.
  const std::uint32_t last = (bits >> 16) & 1;
  return {static_cast<std::uint16_t>((bits + 0x7FFF + last) >> 16)};
}

float to_float(Float16 value) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1F;
  const std::uint32_t mantissa = value.bits & 0x3FF;
  if (exponent == 31) {
    const std::uint32_t quiet = mantissa != 0 ? kQuiet : 0;
    return std::bit_cast<float>(sign | kInfinity | quiet | (mantissa << 13));
  }
  if (exponent == 0) {  // zero or subnormal: mantissa / 2^24, exact in float32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

Float16 to_float16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits & kSign) >> 16;
  const std::uint32_t magnitude = bits & ~kSign;
  if (magnitude > kInfinity) {
    return {static_cast<std::uint16_t>(sign | 0x7E00 | ((magnitude >> 13) & 0x3FF))};
  }
  if (magnitude >= 0x477F'F000) {  // 65520 and above round to infinity
    return {static_cast<std::uint16_t>(sign | 0x7C00)};
  }
  if (magnitude >= 0x3880'0000) {  // 2^-14, the smallest normal
    const std::uint32_t last = (magnitude >> 13) & 1;
    return {static_cast<std::uint16_t>(sign | ((magnitude + 0xFFF + last - (112U << 23)) >> 13))};
  }
  if (magnitude < 0x3300'0000) {  // below 2^-25, half of the smallest subnormal
    return {static_cast<std::uint16_t>(sign)};
  }
  // Subnormal: shift the mantissa with its hidden bit to units of 2^-24, ties to even by hand.
  const std::uint32_t shift = 126 - (magnitude >> 23);  // 14..24
  const std::uint32_t mantissa = (magnitude & 0x007F'FFFF) | 0x0080'0000;
  const std::uint32_t kept = mantissa >> shift;
  const std::uint32_t rest = mantissa & ((1U << shift) - 1);
  const std::uint32_t half = 1U << (shift - 1);
  const bool up = rest > half || (rest == half && (kept & 1) != 0);
  return {static_cast<std::uint16_t>(sign | (kept + (up ? 1 : 0)))};
}

}  // namespace lockstep::kernel
