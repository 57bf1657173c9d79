// The net that is trained here: two convolutions and two layers, 28 x 28 pixels in, 10 classes out.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/torch.h>

namespace fashion_mnist {

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("hidden", hidden);
    register_module("dropout", dropout);
    register_module("output", output);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(conv1(x)), 2);
    x = torch::max_pool2d(torch::relu(conv2(x)), 2);
    return output(dropout(torch::relu(hidden(x.flatten(1)))));
  }

  torch::nn::Conv2d conv1{torch::nn::Conv2dOptions(1, 16, 3).padding(1)};
  torch::nn::Conv2d conv2{torch::nn::Conv2dOptions(16, 32, 3).padding(1)};
  torch::nn::Linear hidden{32 * 7 * 7, 128};
  torch::nn::Dropout dropout{0.25};
  torch::nn::Linear output{128, 10};
};
TORCH_MODULE(Net);

}  // namespace fashion_mnist
