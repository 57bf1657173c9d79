#include "tensor/result_memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace lockstep::tensor {
namespace {

const Tensor kLarge = at::empty({256, 256});  // 256 KiB

TEST(ResultMemory, DroppedBlocksAreUsedAgain) {
  ResultMemory memory;
  const void* first = memory.empty_like(kLarge, at::kFloat).data_ptr();
  EXPECT_EQ(memory.waiting_bytes(), 256U << 10);
  const Tensor again = memory.empty_like(kLarge, at::kFloat);
  EXPECT_EQ(again.data_ptr(), first);
  EXPECT_EQ(memory.waiting_bytes(), 0U);
}

TEST(ResultMemory, LivingTensorsNeverShare) {
  ResultMemory memory;
  std::vector<Tensor> living;
  for (int i = 0; i < 8; ++i) {
    living.push_back(memory.empty_like(kLarge, at::kFloat).fill_(i));
    if (i % 3 == 2) living.erase(living.begin());
  }
  for (std::size_t i = 0; i < living.size(); ++i) {
    EXPECT_TRUE(living[i].eq(living[i][0][0]).all().item<bool>());
    for (std::size_t k = 0; k < i; ++k) EXPECT_NE(living[i].data_ptr(), living[k].data_ptr());
  }
}

TEST(ResultMemory, AViewKeepsItsBlock) {
  ResultMemory memory;
  const Tensor row = memory.empty_like(kLarge, at::kFloat).fill_(7)[3];
  EXPECT_EQ(memory.waiting_bytes(), 0U);
  memory.empty_like(kLarge, at::kFloat).fill_(8);
  EXPECT_TRUE(row.eq(7).all().item<bool>());
}

TEST(ResultMemory, NeverMoreThanWasInUseAtOneTime) {
  ResultMemory memory;
  for (int rows = 300; rows < 400; ++rows) {
    const Tensor one = memory.empty_like(at::empty({rows, 256}), at::kFloat);
    EXPECT_LE(memory.waiting_bytes() + one.nbytes(), 400U << 10);
  }
  EXPECT_LE(memory.waiting_bytes(), 400U << 10);
}

TEST(ResultMemory, TensorsMayOutliveIt) {
  std::optional<ResultMemory> memory(std::in_place);
  Tensor kept = memory->empty_like(kLarge, at::kFloat);
  memory.reset();
  EXPECT_EQ(kept.fill_(1).sum().item<float>(), 65536);
}

TEST(ResultMemory, ShapeStridesAndType) {
  ResultMemory memory;
  const Tensor turned = at::empty({100, 400}).t();
  const Tensor result = memory.empty_like(turned, at::kDouble);
  EXPECT_EQ(result.sizes(), turned.sizes());
  EXPECT_EQ(result.strides(), turned.strides());
  EXPECT_EQ(result.scalar_type(), at::kDouble);
  EXPECT_FALSE(result.requires_grad());
  // A view with gaps gets dense memory; so does what is too small to keep.
  const Tensor gaps = at::empty({400, 400}).slice(1, 0, 400, 2);
  EXPECT_TRUE(memory.empty_like(gaps, at::kFloat).is_contiguous());
  EXPECT_EQ(memory.empty_like(at::ones({2, 3}), at::kFloat).numel(), 6);
  EXPECT_EQ(memory.empty_like(at::ones({0, 3}), at::kFloat).numel(), 0);
}

}  // namespace
}  // namespace lockstep::tensor
