// A step of gradient descent with momentum, in one pass over memory:
//
//   d = gradient + weight_decay * parameter                     if there is weight decay
//   velocity = momentum * velocity + (1 - dampening) * d        if there is momentum
//   d = nesterov ? d + momentum * velocity : velocity
//   parameter = parameter - rate * d
//
// A product that is added is rounded once with its sum where the processor has an instruction for
// it (momentum * velocity is rounded by itself): so does libtorch, whose bits these are.
#pragma once

#include <cstddef>

namespace lockstep::kernel {

struct Descent {
  double rate = 0;
  double weight_decay = 0;
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
};

/// `count` elements each; none of them overlap. Without momentum there is no velocity.
void descend(const Descent& descent, float* parameter, float* velocity, const float* gradient,
             std::size_t count) noexcept;
void descend(const Descent& descent, double* parameter, double* velocity, const double* gradient,
             std::size_t count) noexcept;

}  // namespace lockstep::kernel
