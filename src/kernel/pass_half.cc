// Passes over bfloat16 and float16: added in float32, rounded once where a 16-bit value is stored.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/pass_half.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h: it includes this file again for every target.
#include "kernel/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernel {
namespace HWY_NAMESPACE {

Steps half_steps(Lane lane, Combine combine, int leaves) {
  switch (lane) {
    case Lane::bf16:
      return choose_floating<BFloat16Memory>(combine, leaves);
    case Lane::f16:
      return choose_floating<Float16Memory>(combine, leaves);
    default:
      return {};
  }
}

template <class M>
void round_steps(const Pass& pass) {
  const hn::ScalableTag<float> d;
  const auto* from = static_cast<const Byte*>(pass.inputs[0]);
  const Places places(pass);
  for (std::size_t i = 0; i < pass.count; i += 2 * hn::Lanes(d)) {
    auto first = hn::Zero(d);
    auto second = hn::Zero(d);
    M::load_partial(d, from + 4 * i, first, second);
    store_halves<M, false>(d, first, second, places, 2 * i);
  }
}

Steps rounding_steps(Lane lane) {
  switch (lane) {
    case Lane::bf16:
      return {round_steps<BFloat16Memory>, step_of<BFloat16Memory>()};
    case Lane::f16:
      return {round_steps<Float16Memory>, step_of<Float16Memory>()};
    default:
      return {};
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernel {

HWY_EXPORT(half_steps);
HWY_EXPORT(rounding_steps);

Steps find_half_steps(Lane lane, Combine combine, int leaves) {
  return HWY_DYNAMIC_DISPATCH(half_steps)(lane, combine, leaves);
}

Steps find_rounding_steps(Lane lane) { return HWY_DYNAMIC_DISPATCH(rounding_steps)(lane); }

}  // namespace lockstep::kernel
#endif  // HWY_ONCE
