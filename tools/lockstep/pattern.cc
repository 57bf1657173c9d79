#include "pattern.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace lockstep::tool {
namespace {

/// A well mixed number of two small ones.
std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = (a + 1) * 0x9e3779b97f4a7c15ULL ^ (b + 1) * 0xd1b54a32d192ed03ULL;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9ULL;
  return x ^ (x >> 32);
}

/// An integer of at most 11 bits as IEEE half: exact.
std::uint16_t half_of(std::int64_t value) {
  if (value == 0) return 0;
  const auto magnitude = static_cast<std::uint32_t>(value < 0 ? -value : value);
  const auto exponent = static_cast<std::uint32_t>(std::bit_width(magnitude)) - 1;
  const std::uint32_t mantissa = (magnitude << (10 - exponent)) & 0x3ff;
  return static_cast<std::uint16_t>((value < 0 ? 0x8000U : 0U) | ((exponent + 15) << 10) |
                                    mantissa);
}

/// An integer of at most 8 bits as bfloat16: exact.
std::uint16_t bfloat_of(std::int64_t value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16);
}

template <class T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}

void put_integer(DType dtype, std::byte* at, std::int64_t value) {
  switch (dtype) {
    case DType::float64:
      return put(at, static_cast<double>(value));
    case DType::float32:
      return put(at, static_cast<float>(value));
    case DType::float16:
      return put(at, half_of(value));
    case DType::bfloat16:
      return put(at, bfloat_of(value));
    case DType::int8:
    case DType::uint8:
      return put(at, static_cast<std::uint8_t>(value));
    case DType::int16:
      return put(at, static_cast<std::int16_t>(value));
    case DType::int32:
      return put(at, static_cast<std::int32_t>(value));
    case DType::int64:
      return put(at, value);
    case DType::boolean:
      return put(at, static_cast<std::uint8_t>(value != 0));
    case DType::complex64:
      put(at, static_cast<float>(value));
      return put(at + sizeof(float), static_cast<float>(-value));
    case DType::complex128:
      put(at, static_cast<double>(value));
      return put(at + sizeof(double), static_cast<double>(-value));
  }
}

/// Between 1 and 4, the mean of what the ranks give to a sum.
std::int64_t middle(std::uint64_t i) { return static_cast<std::int64_t>(mixed(i, 0) % 4) + 1; }

/// Small enough that 64 of them add up exactly in bfloat16.
std::int64_t given(Op op, DType dtype, int ranks, int rank, std::uint64_t i) {
  const bool chosen = static_cast<int>(i % static_cast<std::uint64_t>(ranks)) == rank;
  switch (op) {
    case Op::sum:
    case Op::mean:  // what the ranks add to the middle cancels
      return middle(i) + 2L * rank - (ranks - 1);
    case Op::product:  // one rank doubles, others turn the sign
      if (chosen) return 2;
      return mixed(i, static_cast<std::uint64_t>(rank)) % 2 == 0 ? 1 : -1;
    case Op::min:
    case Op::max:
      break;
  }
  if (dtype == DType::boolean) {
    const std::uint64_t which = mixed(i, 0) % 3;
    return which == 2 ? static_cast<std::int64_t>(chosen) : static_cast<std::int64_t>(which);
  }
  return static_cast<std::int64_t>(mixed(i, static_cast<std::uint64_t>(rank)) % 100);
}

std::int64_t reduced(Op op, DType dtype, int ranks, std::uint64_t i) {
  std::int64_t result = given(op, dtype, ranks, 0, i);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::int64_t value = given(op, dtype, ranks, rank, i);
    switch (op) {
      case Op::sum:
      case Op::mean:
        result += value;
        break;
      case Op::product:
        result *= value;
        break;
      case Op::min:
        result = std::min(result, value);
        break;
      case Op::max:
        result = std::max(result, value);
        break;
    }
  }
  return op == Op::mean ? result / ranks : result;
}

}  // namespace

void Pattern::repeat() {
  const std::size_t period = kPeriod * width_;
  std::memcpy(table_.data() + period, table_.data(), period);
}

Pattern Pattern::of_rank(DType dtype, int rank) {
  Pattern pattern(dtype);
  for (std::size_t i = 0; i < kPeriod * pattern.width_; ++i) {
    const auto byte = static_cast<std::uint8_t>(mixed(i, static_cast<std::uint64_t>(rank)));
    pattern.table_[i] = std::byte(dtype == DType::boolean ? byte % 2 : byte);
  }
  pattern.repeat();
  return pattern;
}

Pattern Pattern::input_of(Op op, DType dtype, Group group, int rank) {
  Pattern pattern(dtype);
  for (std::uint64_t i = 0; i < kPeriod; ++i) {
    put_integer(dtype, pattern.table_.data() + i * pattern.width_,
                given(op, dtype, group.ranks, rank, i));
  }
  pattern.repeat();
  return pattern;
}

Pattern Pattern::result_of(Op op, DType dtype, Group group) {
  Pattern pattern(dtype);
  for (std::uint64_t i = 0; i < kPeriod; ++i) {
    put_integer(dtype, pattern.table_.data() + i * pattern.width_,
                reduced(op, dtype, group.ranks, i));
  }
  pattern.repeat();
  return pattern;
}

void Pattern::fill(std::byte* data, std::uint64_t count, std::uint64_t phase) const {
  for (std::uint64_t done = 0; done < count; done += kPeriod) {
    const std::uint64_t now = std::min(kPeriod, count - done);
    std::memcpy(data + done * width_, at(phase), now * width_);
  }
}

std::uint64_t Pattern::wrong(const std::byte* data, std::uint64_t count,
                             std::uint64_t phase) const {
  std::uint64_t wrong = 0;
  const std::byte* expected = at(phase);
  for (std::uint64_t done = 0; done < count; done += kPeriod) {
    const std::uint64_t now = std::min(kPeriod, count - done);
    const std::byte* block = data + done * width_;
    if (std::memcmp(block, expected, now * width_) == 0) continue;
    for (std::uint64_t i = 0; i < now; ++i) {
      wrong += std::memcmp(block + i * width_, expected + i * width_, width_) != 0 ? 1 : 0;
    }
  }
  return wrong;
}

}  // namespace lockstep::tool
