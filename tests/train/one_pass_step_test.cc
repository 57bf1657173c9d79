// A step in one pass has the bits of the one that libtorch takes.
#include "train/one_pass_step.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>

namespace lockstep::train {
namespace {

using torch::Tensor;
using torch::optim::SGD;
using torch::optim::SGDOptions;

enum class Taken { in_one_pass, by_libtorch };

Taken take(torch::optim::Optimizer& optimizer) {
  if (step_in_one_pass(optimizer)) return Taken::in_one_pass;
  optimizer.step();
  return Taken::by_libtorch;
}

Tensor values(std::int64_t count, double seed, torch::Dtype dtype = torch::kFloat) {
  return (torch::arange(count, torch::kDouble) * seed).sin().to(dtype);
}

bool same_bits(const Tensor& one, const Tensor& other) {
  return one.nbytes() == other.nbytes() &&
         (one.nbytes() == 0 || std::memcmp(one.data_ptr(), other.data_ptr(), one.nbytes()) == 0);
}

Tensor velocity_of(SGD& sgd) {
  if (sgd.state().empty()) return torch::zeros({0});
  auto& state = static_cast<torch::optim::SGDParamState&>(*sgd.state().begin()->second);
  return state.momentum_buffer();
}

/// Five steps, whoever takes them.
void expect_same_bits(const SGDOptions& options, std::int64_t count, torch::Dtype dtype) {
  SCOPED_TRACE(fmt::format("{} elements, momentum {}, dampening {}, weight decay {}, nesterov {}",
                           count, options.momentum(), options.dampening(), options.weight_decay(),
                           options.nesterov()));
  const Tensor own = values(count, 0.37, dtype);
  const Tensor theirs = own.clone();
  SGD own_sgd({own}, options);
  SGD their_sgd({theirs}, options);
  for (int i = 0; i < 5; ++i) {
    const Tensor gradient = values(count, 1.3 + i, dtype);
    own.mutable_grad() = gradient;
    theirs.mutable_grad() = gradient.clone();
    take(own_sgd);
    their_sgd.step();
    ASSERT_TRUE(same_bits(own, theirs)) << "after step " << i;
    ASSERT_TRUE(same_bits(velocity_of(own_sgd), velocity_of(their_sgd))) << "after step " << i;
  }
}

std::vector<SGDOptions> all_options() {
  return {SGDOptions(0.1),
          SGDOptions(0.1).weight_decay(0.01),
          SGDOptions(0.1).momentum(0.9),
          SGDOptions(0.1).momentum(0.9).dampening(0.3),
          SGDOptions(0.1).momentum(0.9).weight_decay(0.01),
          SGDOptions(0.1).momentum(0.9).nesterov(true),
          SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01)};
}

TEST(OnePassStep, HasTheBitsOfLibtorch) {
  for (const SGDOptions& options : all_options()) {
    for (const torch::Dtype dtype : {torch::kFloat, torch::kDouble}) {
      for (const std::int64_t count : {0, 1, 7, 16, 33, 100, 40'003}) {
        expect_same_bits(options, count, dtype);
      }
    }
  }
}

TEST(OnePassStep, IsTakenOnceThereIsAVelocity) {
  for (const SGDOptions& options : all_options()) {
    const Tensor parameter = values(100, 0.37);
    SGD sgd({parameter}, options);
    parameter.mutable_grad() = values(100, 1.3);
    EXPECT_EQ(take(sgd), options.momentum() != 0 ? Taken::by_libtorch : Taken::in_one_pass);
    EXPECT_EQ(take(sgd), Taken::in_one_pass);
  }
}

TEST(OnePassStep, TakesParametersAsTheyLie) {
  const auto channels_last = [](const Tensor& tensor) {
    return tensor.contiguous(torch::MemoryFormat::ChannelsLast);
  };
  const Tensor own = channels_last(values(2 * 3 * 4 * 5, 0.37).view({2, 3, 4, 5}));
  const Tensor theirs = own.clone();
  SGD own_sgd({own}, SGDOptions(0.1));
  SGD their_sgd({theirs}, SGDOptions(0.1));
  const Tensor gradient = channels_last(values(own.numel(), 1.3).view(own.sizes()));
  own.mutable_grad() = gradient;
  theirs.mutable_grad() = gradient;
  EXPECT_EQ(take(own_sgd), Taken::in_one_pass);
  their_sgd.step();
  EXPECT_TRUE(own.equal(theirs));
}

TEST(OnePassStep, LeavesAloneWhatHasNoGradient) {
  const Tensor used = values(5, 0.37);
  const Tensor unused = values(5, 0.41);
  const Tensor before = unused.clone();
  SGD sgd({used, unused}, SGDOptions(0.1));
  used.mutable_grad() = torch::ones(5);
  EXPECT_EQ(take(sgd), Taken::in_one_pass);
  EXPECT_TRUE(unused.equal(before));
}

TEST(OnePassStep, GroupsHaveTheirOwnOptions) {
  const Tensor slow = torch::zeros(3);
  const Tensor fast = torch::zeros(3);
  SGD sgd({torch::optim::OptimizerParamGroup({slow}, std::make_unique<SGDOptions>(0.25)),
           torch::optim::OptimizerParamGroup({fast}, std::make_unique<SGDOptions>(2.0))},
          SGDOptions(1.0));
  slow.mutable_grad() = torch::ones(3);
  fast.mutable_grad() = torch::ones(3);
  EXPECT_EQ(take(sgd), Taken::in_one_pass);
  EXPECT_TRUE(slow.equal(torch::full({3}, -0.25)));
  EXPECT_TRUE(fast.equal(torch::full({3}, -2.0)));
}

/// What libtorch is left to do it does as if there were nothing else.
void expect_left_to_libtorch(const Tensor& parameter, const Tensor& gradient) {
  const Tensor whole = torch::zeros(4);
  SGD sgd({whole, parameter}, SGDOptions(0.5));
  whole.mutable_grad() = torch::ones(4);
  parameter.mutable_grad() = gradient;
  const Tensor before = parameter.clone();
  EXPECT_FALSE(step_in_one_pass(sgd));
  EXPECT_TRUE(whole.equal(torch::zeros(4))) << "a step was taken halfway";
  EXPECT_TRUE(parameter.equal(before));
  sgd.step();
  EXPECT_TRUE(whole.equal(torch::full({4}, -0.5)));
}

TEST(OnePassStep, LeavesToLibtorchWhatItCannotDo) {
  expect_left_to_libtorch(torch::zeros({4, 2}), torch::ones({4, 2}).to_sparse(1));
  expect_left_to_libtorch(torch::zeros(4, torch::kBFloat16), torch::ones(4, torch::kBFloat16));
  expect_left_to_libtorch(torch::zeros({4, 2}), torch::ones({2, 4}).t());
  expect_left_to_libtorch(torch::zeros(4), torch::ones(1).expand({4}));
}

struct Observed : SGD {
  using SGD::SGD;
};

TEST(OnePassStep, IsOfTorchsOwnSgdAlone) {
  const Tensor parameter = torch::zeros(4);
  parameter.mutable_grad() = torch::ones(4);
  Observed derived({parameter}, SGDOptions(0.5));
  EXPECT_FALSE(step_in_one_pass(derived));
  torch::optim::Adam adam({parameter}, torch::optim::AdamOptions(0.5));
  EXPECT_FALSE(step_in_one_pass(adam));
  EXPECT_TRUE(parameter.equal(torch::zeros(4)));
}

}  // namespace
}  // namespace lockstep::train
