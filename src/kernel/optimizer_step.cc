#include "kernel/optimizer_step.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/optimizer_step.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h: it includes this file again for every target.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernel {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Each takes as many whole vectors as there are from `begin` on, and returns where the next one
// would begin.

template <class D, class T = hn::TFromD<D>>
std::size_t step_vectors(D d, const Sgd& sgd, const SgdMemory<T>& memory, std::size_t begin) {
  const auto number = [d](double value) { return hn::Set(d, static_cast<T>(value)); };
  const auto down = number(-sgd.rate);
  const auto decay = number(sgd.weight_decay);
  const auto momentum = number(sgd.momentum);
  const auto share = number(1 - sgd.dampening);
  const bool decays = sgd.weight_decay != 0;
  const bool has_momentum = sgd.momentum != 0;
  const bool nesterov = sgd.nesterov;
  std::size_t i = begin;
  for (; i + hn::Lanes(d) <= memory.count; i += hn::Lanes(d)) {
    const auto parameter = hn::LoadU(d, memory.parameter + i);
    auto gradient = hn::LoadU(d, memory.gradient + i);
    if (decays) gradient = hn::MulAdd(parameter, decay, gradient);
    if (has_momentum) {
      const auto kept = hn::Mul(hn::LoadU(d, memory.velocity + i), momentum);
      const auto velocity = hn::MulAdd(gradient, share, kept);
      hn::StoreU(velocity, d, memory.velocity + i);
      gradient = nesterov ? hn::MulAdd(velocity, momentum, gradient) : velocity;
    }
    hn::StoreU(hn::MulAdd(gradient, down, parameter), d, memory.parameter + i);
  }
  return i;
}

template <class D, class T = hn::TFromD<D>>
std::size_t step_vectors(D d, const Adam& adam, const AdamMemory<T>& memory, std::size_t begin) {
  const auto number = [d](double value) { return hn::Set(d, static_cast<T>(value)); };
  const auto down = number(-adam.rate);
  const auto shrink = number(adam.shrink);
  const auto decay = number(adam.weight_decay);
  const auto beta1 = number(adam.beta1);
  const auto beta2 = number(adam.beta2);
  const auto share1 = number(1 - adam.beta1);
  const auto share2 = number(1 - adam.beta2);
  const auto correction = number(adam.correction);
  const auto epsilon = number(adam.epsilon);
  const bool shrinks = adam.shrink != 1;
  const bool decays = adam.weight_decay != 0;
  std::size_t i = begin;
  for (; i + hn::Lanes(d) <= memory.count; i += hn::Lanes(d)) {
    auto parameter = hn::LoadU(d, memory.parameter + i);
    auto gradient = hn::LoadU(d, memory.gradient + i);
    if (shrinks) parameter = hn::Mul(parameter, shrink);
    if (decays) gradient = hn::MulAdd(parameter, decay, gradient);
    const auto kept_mean = hn::Mul(hn::LoadU(d, memory.mean + i), beta1);
    const auto mean = hn::MulAdd(gradient, share1, kept_mean);
    hn::StoreU(mean, d, memory.mean + i);
    const auto kept_square = hn::Mul(hn::LoadU(d, memory.square + i), beta2);
    auto square = hn::MulAdd(hn::Mul(gradient, share2), gradient, kept_square);
    hn::StoreU(square, d, memory.square + i);
    if (memory.largest != nullptr) {
      const auto largest = hn::LoadU(d, memory.largest + i);
      square = hn::IfThenElse(hn::Gt(largest, square), largest, square);  // NaN if the square is
      hn::StoreU(square, d, memory.largest + i);
    }
    const auto width = hn::Add(hn::Div(hn::Sqrt(square), correction), epsilon);
    const auto change = hn::Div(hn::Mul(mean, down), width);
    hn::StoreU(hn::Add(parameter, change), d, memory.parameter + i);
  }
  return i;
}

template <class T, class How, class Memory>
void step_all(const How& how, const Memory& memory) {
  const std::size_t rest = step_vectors(hn::ScalableTag<T>(), how, memory, 0);
  step_vectors(hn::CappedTag<T, 1>(), how, memory, rest);
}

void sgd_f32(const Sgd& sgd, const SgdMemory<float>& memory) { step_all<float>(sgd, memory); }
void sgd_f64(const Sgd& sgd, const SgdMemory<double>& memory) { step_all<double>(sgd, memory); }
void adam_f32(const Adam& adam, const AdamMemory<float>& memory) { step_all<float>(adam, memory); }
void adam_f64(const Adam& adam, const AdamMemory<double>& memory) {
  step_all<double>(adam, memory);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernel {

HWY_EXPORT(sgd_f32);
HWY_EXPORT(sgd_f64);
HWY_EXPORT(adam_f32);
HWY_EXPORT(adam_f64);

void step(const Sgd& sgd, const SgdMemory<float>& memory) noexcept {
  HWY_DYNAMIC_DISPATCH(sgd_f32)(sgd, memory);
}
void step(const Sgd& sgd, const SgdMemory<double>& memory) noexcept {
  HWY_DYNAMIC_DISPATCH(sgd_f64)(sgd, memory);
}
void step(const Adam& adam, const AdamMemory<float>& memory) noexcept {
  HWY_DYNAMIC_DISPATCH(adam_f32)(adam, memory);
}
void step(const Adam& adam, const AdamMemory<double>& memory) noexcept {
  HWY_DYNAMIC_DISPATCH(adam_f64)(adam, memory);
}

}  // namespace lockstep::kernel
#endif  // HWY_ONCE
