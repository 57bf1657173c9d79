// What the larger examples share: their options, and the comparison with plain libtorch.
#pragma once

#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace program {

struct Options {
  int steps = 0;          // --steps N
  bool check = false;     // --check: in double, and compared with plain libtorch afterwards
  std::string file = {};  // whatever else is given
};

/// Also makes standard output line-buffered: an interrupted run leaves its progress in a file or
/// pipe that it is redirected to.
inline Options parse(int argc, char** argv, Options options) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  bool given = false;  // a file: options.file may have a default
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--check") {
      options.check = true;
      torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
    } else if (word == "--steps" && i + 1 < argc) {
      options.steps = std::atoi(argv[++i]);
    } else if (word.starts_with("--") || std::exchange(given, true)) {
      throw std::runtime_error("cannot understand " + word +
                               ": usage: [--steps N] [--check] [FILE]");
    } else {
      options.file = word;
    }
  }
  return options;
}

/// The largest difference between the parameters and buffers of two nets of one class; NaN if there
/// is one.
inline double largest_difference(const torch::nn::Module& one, const torch::nn::Module& other) {
  std::vector<torch::Tensor> largest;
  const auto compare = [&](const auto& ours, const auto& theirs) {
    for (const auto& item : ours) {
      const torch::Tensor difference = item.value().detach() - theirs[item.key()].detach();
      largest.push_back(difference.abs().max().to(torch::kDouble));
    }
  };
  compare(one.named_parameters(), other.named_parameters());
  compare(one.named_buffers(), other.named_buffers());
  return torch::stack(largest).max().item<double>();
}

/// Says how far apart the two trainings are; gives the exit code of the program.
inline int report(double difference) {
  const bool same = difference <= 1e-12;  // false for NaN
  std::printf("plain libtorch with all rows at once: %s (largest difference %.1e)\n",
              same ? "the same" : "NOT the same", difference);
  return same ? 0 : 1;
}

}  // namespace program
