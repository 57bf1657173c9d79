// Optimizers' steps in one pass over memory beside those of libtorch, by one thread and by two; no
// targets.
// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <stdexcept>

#include "bench/support/paired.h"
#include "lockstep/process_memory.h"
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
void compare(const char* name, int threads, const Options& options) {
  torch::set_num_threads(threads);
  for (const std::int64_t elements : kElements) {
    Job<Kind, Options> ours(elements, options);
    Job<Kind, Options> theirs(elements, options);
    const std::int64_t steps = std::max<std::int64_t>(1, 4'000'000 / elements);
    const auto repeat = [&](const auto& step) {
      for (std::int64_t i = 0; i < steps; ++i) step();
    };
    const PairedResult result = paired_ratio(
        {.timer = threads == 1 ? Timer::thread : Timer::wall},
        [&] { repeat([&] { ours.in_one_pass(); }); },
        [&] { repeat([&] { theirs.by_libtorch(); }); });
    const double to_ms = 1e3 / static_cast<double>(steps);
    fmt::print(
        "{:<14} {} thread{} {:>8} parameters: {:7.2f} ms, libtorch {:7.2f} ms; {:.2f} times as "
        "fast, quartiles {:.2f} to {:.2f}\n",
        name, threads, threads == 1 ? ", " : "s,", elements, result.ours_seconds * to_ms,
        result.other_seconds * to_ms, result.median, result.lower_quartile, result.upper_quartile);
  }
}

}  // namespace
}  // namespace lockstep::bench

int main() {
  using namespace lockstep::bench;
  try {
    lockstep::tune_process_memory();
    for (const int threads : {1, 2}) {
      compare<torch::optim::SGD>("SGD, momentum", threads,
                                 torch::optim::SGDOptions(0.001).momentum(0.9));
      compare<torch::optim::Adam>("Adam", threads, torch::optim::AdamOptions(0.001));
      compare<torch::optim::AdamW>("AdamW", threads, torch::optim::AdamWOptions(0.001));
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_optimizer_step: {}\n", error.what());
    return 1;
  }
}
