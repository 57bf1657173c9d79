#include "kernel/descent.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/descent.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h: it includes this file again for every target.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernel {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// As many whole vectors as there are from `begin` on; where the next one would begin.
template <class D, class T = hn::TFromD<D>>
std::size_t descend_vectors(D d, const Descent& descent, T* HWY_RESTRICT parameter,
                            T* HWY_RESTRICT velocity, const T* HWY_RESTRICT gradient,
                            std::size_t begin, std::size_t count) {
  const auto number = [d](double value) { return hn::Set(d, static_cast<T>(value)); };
  const auto down = number(-descent.rate);
  const auto decay = number(descent.weight_decay);
  const auto momentum = number(descent.momentum);
  const auto share = number(1 - descent.dampening);
  std::size_t i = begin;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const auto old = hn::LoadU(d, parameter + i);
    auto step = hn::LoadU(d, gradient + i);
    if (descent.weight_decay != 0) step = hn::MulAdd(old, decay, step);
    if (descent.momentum != 0) {
      const auto kept = hn::Mul(hn::LoadU(d, velocity + i), momentum);
      const auto now = hn::MulAdd(step, share, kept);
      hn::StoreU(now, d, velocity + i);
      step = descent.nesterov ? hn::MulAdd(now, momentum, step) : now;
    }
    hn::StoreU(hn::MulAdd(step, down, old), d, parameter + i);
  }
  return i;
}

template <class T>
void descend_all(const Descent& descent, T* parameter, T* velocity, const T* gradient,
                 std::size_t count) {
  const std::size_t rest =
      descend_vectors(hn::ScalableTag<T>(), descent, parameter, velocity, gradient, 0, count);
  descend_vectors(hn::CappedTag<T, 1>(), descent, parameter, velocity, gradient, rest, count);
}

void descend_f32(const Descent& descent, float* parameter, float* velocity, const float* gradient,
                 std::size_t count) {
  descend_all(descent, parameter, velocity, gradient, count);
}

void descend_f64(const Descent& descent, double* parameter, double* velocity,
                 const double* gradient, std::size_t count) {
  descend_all(descent, parameter, velocity, gradient, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernel {

HWY_EXPORT(descend_f32);
HWY_EXPORT(descend_f64);

void descend(const Descent& descent, float* parameter, float* velocity, const float* gradient,
             std::size_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(descend_f32)(descent, parameter, velocity, gradient, count);
}

void descend(const Descent& descent, double* parameter, double* velocity, const double* gradient,
             std::size_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(descend_f64)(descent, parameter, velocity, gradient, count);
}

}  // namespace lockstep::kernel
#endif  // HWY_ONCE
