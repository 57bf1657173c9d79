// All 2^32 float32 patterns through the vector rounding of every instruction set. Slow.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

#include "kernel/reduce.h"
#include "kernel/round.h"
#include "tests/kernel/targets.h"

namespace lockstep::kernel {
namespace {

constexpr std::size_t kChunk = 1 << 20;

void round_chunk(DType dtype, const std::vector<float>& from, void* to) {
  const Input inputs[] = {{from.data(), Form::partial}};
  const Target targets[] = {{to, Form::value}};
  reduce({.op = Op::max,
          .dtype = dtype,
          .inputs = inputs,
          .merges = tree_merges(1),
          .targets = targets,
          .count = from.size()});
}

TEST(RoundSweep, EveryFloatMatchesOnEveryTarget) {
  const auto available = available_targets();
  std::vector<float> values(kChunk);
  std::vector<Float16> f16(kChunk);
  std::vector<BFloat16> bf16(kChunk);
  std::vector<std::uint16_t> actual(kChunk);
  for (std::uint64_t begin = 0; begin < (1ULL << 32); begin += kChunk) {
    for (std::size_t i = 0; i < kChunk; ++i) {
      values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(begin + i));
      f16[i] = to_float16(values[i]);
      bf16[i] = to_bfloat16(values[i]);
    }
    for (const std::int64_t target : available) {
      const OnTarget on(target);
      round_chunk(DType::float16, values, actual.data());
      ASSERT_EQ(std::memcmp(actual.data(), f16.data(), kChunk * 2), 0)
          << "float16 on " << hwy::TargetName(target) << " from 0x" << std::hex << begin;
      round_chunk(DType::bfloat16, values, actual.data());
      ASSERT_EQ(std::memcmp(actual.data(), bf16.data(), kChunk * 2), 0)
          << "bfloat16 on " << hwy::TargetName(target) << " from 0x" << std::hex << begin;
    }
  }
}

}  // namespace
}  // namespace lockstep::kernel
