// A training step of the example's convolutional net, on data that is there already.
#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/tensor.h"

namespace lockstep::bench {

class FashionMnistStep {
 public:
  /// Two replicas share the batch.
  FashionMnistStep(const Tensor& images, const Tensor& labels);
  ~FashionMnistStep();
  FashionMnistStep(const FashionMnistStep&) = delete;
  FashionMnistStep& operator=(const FashionMnistStep&) = delete;
  void steps(int count);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::bench
