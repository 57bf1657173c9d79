// Optimizers' steps in one pass over memory beside those of libtorch; one thread, no targets.
// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <stdexcept>

#include "bench/support/paired.h"
#include "lockstep/mirrored_strategy.h"
#include "train/one_pass_step.h"

namespace lockstep::bench {
namespace {

using torch::Tensor;

constexpr std::int64_t kElements[] = {670'000, 25'000'000};

/// A parameter and its gradient, and an optimizer that has its state.
template <class Kind, class Options>
class Job {
 public:
  Job(std::int64_t elements, const Options& options)
      : parameter_(torch::randn(elements)), optimizer_({parameter_}, options) {
    parameter_.mutable_grad() = torch::randn(elements);
    optimizer_.step();
  }

  void by_libtorch() { optimizer_.step(); }
  void in_one_pass() {
    if (!train::step_in_one_pass(optimizer_))
      throw std::runtime_error("libtorch rounds otherwise on this processor: no step in one pass");
  }

 private:
  Tensor parameter_;
  Kind optimizer_;
};

template <class Kind, class Options>
void compare(const char* name, const Options& options) {
  for (const std::int64_t elements : kElements) {
    Job<Kind, Options> ours(elements, options);
    Job<Kind, Options> theirs(elements, options);
    const std::int64_t steps = std::max<std::int64_t>(1, 4'000'000 / elements);
    const auto repeat = [&](const auto& step) {
      for (std::int64_t i = 0; i < steps; ++i) step();
    };
    const PairedResult result = paired_ratio(
        {.timer = Timer::thread}, [&] { repeat([&] { ours.in_one_pass(); }); },
        [&] { repeat([&] { theirs.by_libtorch(); }); });
    const double to_ms = 1e3 / static_cast<double>(steps);
    fmt::print(
        "{:<14} {:>8} parameters: {:7.2f} ms, libtorch {:7.2f} ms; {:.2f} times as fast, "
        "quartiles {:.2f} to {:.2f}\n",
        name, elements, result.ours_seconds * to_ms, result.other_seconds * to_ms, result.median,
        result.lower_quartile, result.upper_quartile);
  }
}

}  // namespace
}  // namespace lockstep::bench

int main() {
  using namespace lockstep::bench;
  try {
    // Sets up the allocator as in training: freed memory stays with the process.
    const lockstep::MirroredStrategy settings({.devices = {"CPU:0"}});
    torch::set_num_threads(1);
    compare<torch::optim::SGD>("SGD, momentum", torch::optim::SGDOptions(0.001).momentum(0.9));
    compare<torch::optim::Adam>("Adam", torch::optim::AdamOptions(0.001));
    compare<torch::optim::AdamW>("AdamW", torch::optim::AdamWOptions(0.001));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_optimizer_step: {}\n", error.what());
    return 1;
  }
}
