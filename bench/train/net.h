// The nets that all contestants train, and their data. The script of the Python contestant has the
// same ones: equal seeds give equal weights and rows in both, so the losses can be compared.
#pragma once

// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <stdexcept>
#include <string>

namespace lockstep::bench::train {

inline constexpr std::int64_t kBatch = 64;  // of a replica
inline constexpr std::int64_t kClasses = 10;
inline constexpr double kRate = 0.001;
inline constexpr double kMomentum = 0.9;
inline constexpr std::uint64_t kWeightSeed = 1;
inline constexpr std::uint64_t kDataSeed = 100;  // and the replica's number

/// "mlp" (0.67 M parameters), "cnn" (0.21 M) or "mlp25m" (25.3 M).
class NetImpl : public torch::nn::Module {
 public:
  explicit NetImpl(const std::string& kind) {
    if (kind == "mlp") {
      connect({784, 512, 512, kClasses});
    } else if (kind == "mlp25m") {
      connect({784, 4096, 4096, 1280, kClasses});
    } else if (kind == "cnn") {
      using Convolution = torch::nn::Conv2dOptions;
      layers_->push_back(torch::nn::Conv2d(Convolution(1, 16, 3).padding(1)));
      layers_->push_back(torch::nn::ReLU());
      layers_->push_back(torch::nn::MaxPool2d(2));
      layers_->push_back(torch::nn::Conv2d(Convolution(16, 32, 3).padding(1)));
      layers_->push_back(torch::nn::ReLU());
      layers_->push_back(torch::nn::MaxPool2d(2));
      layers_->push_back(torch::nn::Flatten());
      connect({std::int64_t{32} * 7 * 7, 128, kClasses});
    } else {
      throw std::invalid_argument("there is no net " + kind);
    }
    register_module("layers", layers_);
  }

  Tensor forward(const Tensor& x) { return layers_->forward(x); }

 private:
  void connect(const std::vector<std::int64_t>& widths) {
    for (std::size_t i = 1; i < widths.size(); ++i) {
      if (i > 1) layers_->push_back(torch::nn::ReLU());
      layers_->push_back(torch::nn::Linear(widths[i - 1], widths[i]));
    }
  }

  torch::nn::Sequential layers_;
};
TORCH_MODULE(Net);

inline std::int64_t parameters_of(const NetImpl& net) {
  std::int64_t count = 0;
  for (const Tensor& parameter : net.parameters()) count += parameter.numel();
  return count;
}

struct Rows {
  Tensor x;
  Tensor y;
};

inline Rows rows_of(const std::string& kind, int replica) {
  const at::Generator generator =
      at::detail::createCPUGenerator(kDataSeed + static_cast<std::uint64_t>(replica));
  const std::vector<std::int64_t> shape = kind == "cnn"
                                              ? std::vector<std::int64_t>{kBatch, 1, 28, 28}
                                              : std::vector<std::int64_t>{kBatch, 784};
  const Tensor x = torch::randn(shape, generator);
  return {x, torch::randint(0, kClasses, {kBatch}, generator, torch::kLong)};
}

}  // namespace lockstep::bench::train
