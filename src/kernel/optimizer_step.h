// Steps of optimizers in one pass over memory. A product that is added is rounded once with its sum
// where the processor has an instruction for it, and by itself where it is said to be rounded, as
// in libtorch's own code for such processors.
//
// SGD:
//   g = gradient + weight_decay * parameter
//   velocity = rounded(momentum * velocity) + (1 - dampening) * g       if there is momentum
//   g = nesterov ? g + momentum * velocity : velocity                   likewise
//   parameter = parameter - rate * g
//
// Adam and AdamW:
//   parameter = rounded(shrink * parameter)                             AdamW's weight decay
//   g = gradient + weight_decay * parameter                             Adam's
//   mean = rounded(beta1 * mean) + (1 - beta1) * g
//   square = rounded(beta2 * square) + rounded((1 - beta2) * g) * g
//   largest = max(largest, square), which then stands for it            AMSGrad
//   parameter = parameter - rounded(rate * mean) / (sqrt(square) / correction + epsilon), rounded
#pragma once

#include <cstddef>

namespace lockstep::kernel {

struct Sgd {
  double rate = 0;
  double weight_decay = 0;
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
};

struct Adam {
  double rate = 0;  // learning rate / (1 - beta1^steps)
  double shrink = 1;
  double weight_decay = 0;
  double beta1 = 0;
  double beta2 = 0;
  double correction = 1;  // sqrt(1 - beta2^steps)
  double epsilon = 0;
};

// `count` elements each; none of them overlap.

template <class T>
struct SgdMemory {
  T* parameter;
  T* velocity;  // null without momentum
  const T* gradient;
  std::size_t count;
};

template <class T>
struct AdamMemory {
  T* parameter;
  T* mean;
  T* square;
  T* largest;  // null without AMSGrad
  const T* gradient;
  std::size_t count;
};

void step(const Sgd& sgd, const SgdMemory<float>& memory) noexcept;
void step(const Sgd& sgd, const SgdMemory<double>& memory) noexcept;
void step(const Adam& adam, const AdamMemory<float>& memory) noexcept;
void step(const Adam& adam, const AdamMemory<double>& memory) noexcept;

}  // namespace lockstep::kernel
