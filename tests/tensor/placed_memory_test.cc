#include "tensor/placed_memory.h"

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "lockstep/error.h"

namespace lockstep::tensor {
namespace {

/// A weight of 8 KiB, memory for its gradient, and how often such was made.
class Placing : public testing::Test {
 protected:
  Placing() { memory_->expect(weight_.nbytes()); }
  static void SetUpTestSuite() { PlacedMemory::place_gradients_of_this_process(); }

  static Tensor loss_of(const Tensor& weight) {
    return torch::linspace(-1, 1, 96).view({3, 32}).mm(weight).pow(2).sum();
  }
  Tensor gradient_in(PlacedMemory* memory) {
    weight_.mutable_grad() = Tensor();
    const PlacedMemory::Scope scope(memory);
    loss_of(weight_).backward();
    return weight_.grad();
  }

  /// Calls fn where a backward pass computes: in a node, on this thread, with nothing recorded.
  static void in_backward(const std::function<void()>& fn) {
    const Tensor y = torch::ones(1, torch::requires_grad()) * 2;
    y.register_hook([&](const Tensor&) { fn(); });
    y.backward();
  }

  int made_ = 0;
  std::optional<PlacedMemory> memory_{std::in_place, [this](std::size_t bytes) {
                                        ++made_;
                                        return std::shared_ptr<void>(
                                            ::operator new(bytes),
                                            [](void* block) { ::operator delete(block); });
                                      }};
  Tensor weight_ = torch::linspace(0, 1, 32 * 64).view({32, 64}).requires_grad_();
};

TEST_F(Placing, ABackwardPassComputesRightIntoIt) {
  const Tensor usual = gradient_in(nullptr).clone();
  EXPECT_EQ(made_, 0);
  for (int i = 0; i < 5; ++i) {
    const Tensor gradient = gradient_in(&*memory_);
    EXPECT_TRUE(memory_->holds(gradient));
    EXPECT_FALSE(memory_->holds(gradient[0])) << "not the whole of it";
    EXPECT_FALSE(memory_->holds(gradient[1])) << "not the whole of it";
    EXPECT_TRUE(gradient.equal(usual));
    EXPECT_FALSE(memory_->holds(weight_));
  }
  EXPECT_LE(made_, 2) << "the same memory again and again";
}

TEST_F(Placing, ElsewhereNothingIsPlaced) {
  {
    const PlacedMemory::Scope scope(&*memory_);
    EXPECT_FALSE(memory_->holds(weight_ * 2)) << "recorded: a forward pass";
    {
      const at::NoGradGuard not_recorded;
      EXPECT_FALSE(memory_->holds(weight_ * 2)) << "not recorded, but no backward pass";
    }
    in_backward([&] {
      EXPECT_TRUE(memory_->holds(weight_ * 2));
      EXPECT_FALSE(memory_->holds(torch::ones({32, 63}))) << "of a size that is not expected";
      EXPECT_FALSE(memory_->holds(torch::ones({32, 65}))) << "of a size that is not expected";
      std::thread([&] { EXPECT_FALSE(memory_->holds(torch::ones({32, 64}))); }).join();
      const PlacedMemory::Scope nowhere(nullptr);
      EXPECT_FALSE(memory_->holds(weight_ * 2));
    });
  }
  EXPECT_FALSE(memory_->holds(gradient_in(nullptr)));
  memory_->forget(weight_.nbytes());
  EXPECT_FALSE(memory_->holds(gradient_in(&*memory_)));
}

TEST_F(Placing, ABackwardPassThatIsRecordedPlacesNothing) {
  const PlacedMemory::Scope scope(&*memory_);
  const auto gradients = torch::autograd::grad({loss_of(weight_)}, {weight_}, {}, true, true);
  EXPECT_FALSE(memory_->holds(gradients[0]));
}

TEST_F(Placing, WhoeverKeepsManyGetsTheRestElsewhere) {
  const PlacedMemory::Scope scope(&*memory_);
  std::vector<Tensor> kept;
  in_backward([&] {
    for (int i = 0; i < 5; ++i) kept.push_back(weight_ + i);
  });
  int placed = 0;
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(kept[static_cast<std::size_t>(i)].equal(weight_ + i));
    placed += memory_->holds(kept[static_cast<std::size_t>(i)]) ? 1 : 0;
  }
  EXPECT_EQ(placed, 2);
  kept.clear();
  in_backward([&] { EXPECT_TRUE(memory_->holds(weight_ * 2)); });
}

TEST_F(Placing, BlocksOfEverySizeWaitForTheNextOfTheirs) {
  memory_->expect(2 * weight_.nbytes());
  const PlacedMemory::Scope scope(&*memory_);
  in_backward([&] {
    Tensor last;
    for (int i = 0; i < 20; ++i) {
      Tensor large = torch::ones({64, 64});
      const Tensor small = weight_ * 2;
      const Tensor again = weight_ * 3;
      EXPECT_TRUE(memory_->holds(large) && memory_->holds(small) && memory_->holds(again));
      last = std::move(large);
    }
  });
  EXPECT_EQ(made_, 4);
}

TEST_F(Placing, ClosedItUsesNoBlockAgain) {
  const Tensor kept = gradient_in(&*memory_);
  ASSERT_TRUE(memory_->holds(kept));
  memory_->close();
  memory_->expect(weight_.nbytes());
  EXPECT_FALSE(memory_->holds(gradient_in(&*memory_)));
  EXPECT_TRUE(memory_->holds(kept));
}

/// As oneDNN's scratch memory is.
TEST_F(Placing, MemoryWithoutATensorIsGivenBackByItsAddress) {
  c10::Allocator& allocator = *c10::GetCPUAllocator();
  void* const usual = allocator.raw_allocate(weight_.nbytes());
  {
    const PlacedMemory::Scope scope(&*memory_);
    in_backward([&] {
      void* const placed = allocator.raw_allocate(weight_.nbytes());
      EXPECT_EQ(made_, 1);
      allocator.raw_deallocate(usual);
      allocator.raw_deallocate(placed);
      const Tensor next = weight_ * 2;
      EXPECT_EQ(next.data_ptr(), placed) << "it waited for the next of its size";
    });
  }
}

TEST_F(Placing, TensorsOutliveIt) {
  const Tensor gradient = gradient_in(&*memory_);
  ASSERT_TRUE(memory_->holds(gradient));
  const Tensor copy = gradient.clone();
  memory_.reset();
  EXPECT_TRUE(gradient.equal(copy));
}

TEST_F(Placing, AShortageIsNobodysErrorButOfWhoAsksForMemory) {
  PlacedMemory none([](std::size_t) -> std::shared_ptr<void> { throw SystemError("none left"); });
  none.expect(weight_.nbytes());
  const Tensor usual = gradient_in(nullptr).clone();
  EXPECT_TRUE(gradient_in(&none).equal(usual));
  EXPECT_FALSE(none.holds(weight_.grad()));
  EXPECT_THROW(none.empty_like(weight_), SystemError);
}

TEST_F(Placing, MemoryCanBeAskedForInAnyShape) {
  const Tensor turned = torch::ones({32, 64}).t();
  const Tensor like = memory_->empty_like(turned);
  EXPECT_TRUE(memory_->holds(like));
  EXPECT_EQ(like.strides(), turned.strides());
  const Tensor with_gaps = torch::ones({8, 8}).slice(1, 0, 8, 2);
  const Tensor without = memory_->empty_like(with_gaps);
  EXPECT_EQ(without.sizes(), with_gaps.sizes());
  EXPECT_TRUE(without.is_contiguous());
  EXPECT_EQ(without.storage().nbytes(), with_gaps.numel() * sizeof(float));
}

}  // namespace
}  // namespace lockstep::tensor
