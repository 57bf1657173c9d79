// A step in one pass has the bits of the one that libtorch takes.
#include "train/one_pass_step.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <set>
#include <thread>

#include "lockstep/error.h"

namespace lockstep::train {
namespace {

using ::testing::HasSubstr;
using torch::Tensor;
using namespace torch::optim;

enum class Taken { in_one_pass, by_libtorch };

Taken take(Optimizer& optimizer) {
  if (step_in_one_pass(optimizer)) return Taken::in_one_pass;
  optimizer.step();
  return Taken::by_libtorch;
}

Tensor values(std::int64_t count, double seed, torch::Dtype dtype = torch::kFloat) {
  return (torch::arange(count, torch::kDouble) * seed).sin().to(dtype);
}

bool same_bits(const Tensor& one, const Tensor& other) {
  if (one.defined() != other.defined()) return false;
  return !one.defined() ||
         (one.nbytes() == other.nbytes() &&
          (one.nbytes() == 0 || std::memcmp(one.data_ptr(), other.data_ptr(), one.nbytes()) == 0));
}

bool same_state(const SGDParamState& one, const SGDParamState& other) {
  return same_bits(one.momentum_buffer(), other.momentum_buffer());
}

template <class State>  // Adam's or AdamW's
bool same_state(const State& one, const State& other) {
  return one.step() == other.step() && same_bits(one.exp_avg(), other.exp_avg()) &&
         same_bits(one.exp_avg_sq(), other.exp_avg_sq()) &&
         same_bits(one.max_exp_avg_sq(), other.max_exp_avg_sq());
}

/// Of the only parameter; none before the first step, and none of SGD without momentum.
template <class State>
void expect_same_state(Optimizer& one, Optimizer& other) {
  ASSERT_EQ(one.state().size(), other.state().size());
  if (one.state().empty()) return;
  EXPECT_TRUE(same_state(static_cast<const State&>(*one.state().begin()->second),
                         static_cast<const State&>(*other.state().begin()->second)));
}

/// Where libtorch was told to use other code than the processor's best
/// (train/one_pass_step_unfused), it may have to take the steps itself; then this is about the look
/// at it.
bool is_told_otherwise() { return std::getenv("ATEN_CPU_CAPABILITY") != nullptr; }

/// Five steps, all in one pass but the first, which may have to make state.
template <class Kind, class State, class Options>
void expect_same_bits(const Options& options, std::int64_t count, torch::Dtype dtype) {
  const Tensor own = values(count, 0.37, dtype);
  const Tensor theirs = own.clone();
  Kind own_optimizer({own}, options);
  Kind their_optimizer({theirs}, options);
  for (int i = 0; i < 5; ++i) {
    SCOPED_TRACE(fmt::format("{} elements, step {}", count, i));
    const Tensor gradient = values(count, 1.3 + i, dtype);
    own.mutable_grad() = gradient;
    theirs.mutable_grad() = gradient.clone();
    const auto own_version = own._version();
    const auto their_version = theirs._version();
    const Taken taken = take(own_optimizer);
    their_optimizer.step();
    EXPECT_TRUE(i == 0 || is_told_otherwise() || taken == Taken::in_one_pass);
    ASSERT_TRUE(same_bits(own, theirs));
    // A graph that has kept the parameter finds out, or does not.
    EXPECT_EQ(own._version() > own_version, theirs._version() > their_version);
    expect_same_state<State>(own_optimizer, their_optimizer);
  }
}

template <class Kind, class State, class Options>
void expect_same_bits(const std::vector<Options>& each) {
  for (std::size_t i = 0; i < each.size(); ++i) {
    SCOPED_TRACE(fmt::format("options {}", i));
    for (const torch::Dtype dtype : {torch::kFloat, torch::kDouble}) {
      for (const std::int64_t count : {0, 1, 7, 16, 33, 100, 40'003}) {
        expect_same_bits<Kind, State>(each[i], count, dtype);
      }
    }
  }
}

std::vector<SGDOptions> kinds_of_sgd() {
  return {SGDOptions(0.1),
          SGDOptions(0.1).weight_decay(0.01),
          SGDOptions(0.1).momentum(0.9),
          SGDOptions(0.1).momentum(0.9).dampening(0.3),
          SGDOptions(0.1).momentum(0.9).weight_decay(0.01),
          SGDOptions(0.1).momentum(0.9).nesterov(true),
          SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01)};
}

template <class Options>
std::vector<Options> kinds_of_adam() {
  return {Options(0.01).weight_decay(0), Options(0.01).weight_decay(0.1),
          Options(0.01).weight_decay(0).amsgrad(true),
          Options(0.01).weight_decay(0.1).amsgrad(true),
          Options(0.01).betas({0.5, 0.75}).eps(0.25)};
}

TEST(OnePassStep, HasTheBitsOfLibtorch) {
  expect_same_bits<SGD, SGDParamState>(kinds_of_sgd());
  expect_same_bits<Adam, AdamParamState>(kinds_of_adam<AdamOptions>());
  expect_same_bits<AdamW, AdamWParamState>(kinds_of_adam<AdamWOptions>());
}

template <class Kind, class Options>
void expect_taken(const Options& options, Taken first) {
  const Tensor parameter = values(100, 0.37);
  Kind optimizer({parameter}, options);
  parameter.mutable_grad() = values(100, 1.3);
  EXPECT_EQ(take(optimizer), first);
  EXPECT_EQ(take(optimizer), Taken::in_one_pass);
}

TEST(OnePassStep, IsTakenOnceThereIsState) {
  for (const SGDOptions& options : kinds_of_sgd()) {
    expect_taken<SGD>(options, options.momentum() != 0 ? Taken::by_libtorch : Taken::in_one_pass);
  }
  for (const AdamOptions& options : kinds_of_adam<AdamOptions>()) {
    expect_taken<Adam>(options, Taken::by_libtorch);
  }
  for (const AdamWOptions& options : kinds_of_adam<AdamWOptions>()) {
    expect_taken<AdamW>(options, Taken::by_libtorch);
  }
}

// What is not a number stays so, and harms nobody else.
TEST(OnePassStep, PassesOnWhatIsNotFinite) {
  const Tensor own = torch::ones(40);
  const Tensor theirs = own.clone();
  Adam own_adam({own}, AdamOptions(0.1).amsgrad(true));
  Adam their_adam({theirs}, AdamOptions(0.1).amsgrad(true));
  for (int i = 0; i < 4; ++i) {
    const Tensor gradient = values(40, 1.3 + i);
    if (i == 2) {
      gradient[3] = std::numeric_limits<float>::quiet_NaN();
      gradient[5] = std::numeric_limits<float>::infinity();
    }
    own.mutable_grad() = gradient;
    theirs.mutable_grad() = gradient;
    take(own_adam);
    their_adam.step();
    EXPECT_TRUE(torch::allclose(own, theirs, 0, 0, true)) << "after step " << i;
  }
  EXPECT_EQ(own.isnan().sum().item<int>(), 2);
}

TEST(OnePassStep, TakesParametersAsTheyLie) {
  const auto channels_last = [](const Tensor& tensor) {
    return tensor.contiguous(torch::MemoryFormat::ChannelsLast);
  };
  const Tensor own = channels_last(values(2 * 3 * 4 * 5, 0.37).view({2, 3, 4, 5}));
  const Tensor theirs = own.clone();
  const SGDOptions options = SGDOptions(0.1).momentum(0.9);
  SGD own_sgd({own}, options);
  SGD their_sgd({theirs}, options);
  const Tensor gradient = channels_last(values(own.numel(), 1.3).view(own.sizes()));
  own.mutable_grad() = gradient;
  theirs.mutable_grad() = gradient;
  for (const Taken taken : {Taken::by_libtorch, Taken::in_one_pass}) {
    EXPECT_EQ(take(own_sgd), taken);
    their_sgd.step();
    EXPECT_TRUE(own.equal(theirs));
  }
}

// --- several threads
// -------------------------------------------------------------------------------

std::mutex parts_mutex;
std::set<std::thread::id> part_takers;

/// tensor::in_parts. Notes the threads that took a part.
void in_observed_parts(const Tensor& tensor, FunctionRef<void(std::size_t, std::size_t)> work) {
  tensor::in_parts(tensor, [&](std::size_t begin, std::size_t end) {
    {
      const std::lock_guard lock(parts_mutex);
      part_takers.insert(std::this_thread::get_id());
    }
    work(begin, end);
  });
}

/// Three steps by one thread of libtorch's, and by so many threads in one pass.
template <class Kind, class State, class Options>
void expect_same_bits_of(int threads, const Options& options) {
  constexpr std::int64_t kCount = 200'003;
  SCOPED_TRACE(fmt::format("{} threads", threads));
  const Tensor own = values(kCount, 0.37);
  const Tensor theirs = own.clone();
  Kind own_optimizer({own}, options);
  Kind their_optimizer({theirs}, options);
  for (int i = 0; i < 3; ++i) {
    own.mutable_grad() = values(kCount, 1.3 + i);
    theirs.mutable_grad() = own.grad().clone();
    their_optimizer.step();
    if (i == 0) {
      own_optimizer.step();  // makes the state
    } else {
      part_takers.clear();
      at::set_num_threads(threads);
      EXPECT_TRUE(step_in_one_pass(own_optimizer, in_observed_parts));
      at::set_num_threads(1);
      EXPECT_EQ(part_takers.size(),
                tensor::kPartsAreSerial ? 1U : static_cast<std::size_t>(threads));
    }
    ASSERT_TRUE(same_bits(own, theirs)) << "step " << i;
    expect_same_state<State>(own_optimizer, their_optimizer);
  }
}

TEST(OnePassStep, IsTakenBySeveralThreadsWithTheSameBits) {
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  for (const int threads : {1, 2, 3, 5}) {
    expect_same_bits_of<SGD, SGDParamState>(threads, SGDOptions(0.1).momentum(0.9));
    expect_same_bits_of<Adam, AdamParamState>(threads, AdamOptions(0.01).amsgrad(true));
    expect_same_bits_of<AdamW, AdamWParamState>(threads, AdamWOptions(0.01));
  }
  at::set_num_threads(before);
}

// --- states that were loaded
// -----------------------------------------------------------------------

/// What a step says that finds a state with one tensor less; nothing may have changed.
template <class Kind, class State, class Options, class Drop>
std::string refused_without(const Options& options, const Drop& drop) {
  const Tensor other = values(3, 0.1);
  const Tensor parameter = values(8, 0.37).view({2, 4});
  Kind optimizer({other, parameter}, options);
  other.mutable_grad() = values(3, 1.2);
  parameter.mutable_grad() = values(8, 1.3).view({2, 4});
  optimizer.step();
  auto& states = optimizer.state();
  drop(static_cast<State&>(*states.at(c10::guts::to_string(parameter.unsafeGetTensorImpl()))));
  const Tensor before = other.clone();
  try {
    EXPECT_TRUE(step_in_one_pass(optimizer)) << "left to libtorch, which reads it";
    ADD_FAILURE() << "not refused";
  } catch (const InvalidUsage& error) {
    EXPECT_TRUE(other.equal(before)) << "a step was taken halfway";
    return error.what();
  }
  return {};
}

TEST(OnePassStep, AStateWithoutWhatTheOptionsNeedIsRefused) {
  const std::string sgd = refused_without<SGD, SGDParamState>(
      SGDOptions(0.1).momentum(0.9), [](SGDParamState& state) { state.momentum_buffer(Tensor()); });
  EXPECT_THAT(sgd, HasSubstr("parameter 1 of group 0, [2, 4], has no momentum_buffer"));
  EXPECT_THAT(sgd, HasSubstr("erase"));
  const auto adam = [](const auto& drop) {
    return refused_without<Adam, AdamParamState>(AdamOptions(0.1).amsgrad(true), drop);
  };
  EXPECT_THAT(adam([](AdamParamState& state) { state.exp_avg(Tensor()); }),
              HasSubstr("has no exp_avg,"));
  EXPECT_THAT(adam([](AdamParamState& state) { state.exp_avg_sq(Tensor()); }),
              HasSubstr("has no exp_avg_sq,"));
  EXPECT_THAT(adam([](AdamParamState& state) { state.max_exp_avg_sq(Tensor()); }),
              HasSubstr("has no max_exp_avg_sq,"));
  const std::string adamw = refused_without<AdamW, AdamWParamState>(
      AdamWOptions(0.1), [](AdamWParamState& state) { state.exp_avg_sq(Tensor()); });
  EXPECT_THAT(adamw, HasSubstr("has no exp_avg_sq,"));
}

// The remedy that the message names.
TEST(OnePassStep, AStateThatWasErasedIsMadeAnew) {
  const Tensor parameter = values(4, 0.37);
  SGD sgd({parameter}, SGDOptions(0.1).momentum(0.9));
  parameter.mutable_grad() = torch::ones(4);
  sgd.step();
  static_cast<SGDParamState&>(*sgd.state().begin()->second).momentum_buffer(Tensor());
  EXPECT_THROW(take(sgd), InvalidUsage);
  sgd.state().clear();
  EXPECT_EQ(take(sgd), Taken::by_libtorch);
  EXPECT_EQ(take(sgd), Taken::in_one_pass);
}

// A buffer that these options do not need may be missing.
TEST(OnePassStep, WithoutMomentumNoBufferIsNeeded) {
  const Tensor parameter = torch::zeros(4);
  SGD sgd({parameter}, SGDOptions(0.5));
  parameter.mutable_grad() = torch::ones(4);
  sgd.state()[c10::guts::to_string(parameter.unsafeGetTensorImpl())] =
      std::make_unique<SGDParamState>();
  EXPECT_EQ(take(sgd), Taken::in_one_pass);
  EXPECT_TRUE(parameter.equal(torch::full({4}, -0.5)));
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
  SGD sgd({OptimizerParamGroup({slow}, std::make_unique<SGDOptions>(0.25)),
           OptimizerParamGroup({fast}, std::make_unique<SGDOptions>(2.0))},
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

bool moves(const Tensor& parameter, const Tensor& gradient) {
  SGD sgd({parameter}, SGDOptions(0.5));
  parameter.mutable_grad() = gradient;
  return step_in_one_pass(sgd);
}

TEST(OnePassStep, LeavesToLibtorchWhatItCannotDo) {
  expect_left_to_libtorch(torch::zeros({4, 2}), torch::ones({4, 2}).to_sparse(1));
  expect_left_to_libtorch(torch::zeros(4, torch::kBFloat16), torch::ones(4, torch::kBFloat16));
  expect_left_to_libtorch(torch::zeros({4, 2}), torch::ones({2, 4}).t());
  expect_left_to_libtorch(torch::zeros(4), torch::ones(1).expand({4}));
  expect_left_to_libtorch(torch::zeros(4), torch::ones(4, torch::kDouble));
  expect_left_to_libtorch(torch::zeros(4), at::_efficientzerotensor({4}));
  const Tensor itself = torch::ones(4);
  expect_left_to_libtorch(itself, itself.detach());
  const Tensor memory = torch::ones(6);
  EXPECT_FALSE(moves(memory.narrow(0, 0, 4), memory.narrow(0, 2, 4))) << "they overlap";
}

// A parameter that was not used before has none yet.
TEST(OnePassStep, LeavesToLibtorchAStepThatMakesSomeState) {
  const Tensor old = torch::zeros(4);
  const Tensor other = torch::zeros(4);
  SGD sgd({old, other}, SGDOptions(0.5).momentum(0.5));
  old.mutable_grad() = torch::ones(4);
  sgd.step();
  other.mutable_grad() = torch::ones(4);
  EXPECT_FALSE(step_in_one_pass(sgd));
  EXPECT_TRUE(old.equal(torch::full({4}, -0.5))) << "a step was taken halfway";
  sgd.step();
  EXPECT_TRUE(step_in_one_pass(sgd));
}

struct Observed : SGD {
  using SGD::SGD;
};

TEST(OnePassStep, IsOfTorchsOwnOptimizersAlone) {
  const Tensor parameter = torch::zeros(4);
  parameter.mutable_grad() = torch::ones(4);
  Observed derived({parameter}, SGDOptions(0.5));
  EXPECT_FALSE(step_in_one_pass(derived));
  RMSprop other({parameter}, RMSpropOptions(0.5));
  EXPECT_FALSE(step_in_one_pass(other));
  EXPECT_TRUE(parameter.equal(torch::zeros(4)));
}

}  // namespace
}  // namespace lockstep::train
