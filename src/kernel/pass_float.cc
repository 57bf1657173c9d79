// Passes over float32 and float64.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/pass_float.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h: it includes this file again for every target.
#include "kernel/pass-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernel {
namespace HWY_NAMESPACE {

Steps float_steps(Lane lane, Combine combine, int leaves) {
  switch (lane) {
    case Lane::f64:
      return choose_floating<Plain<double>>(combine, leaves);
    case Lane::f32:
      return choose_floating<Plain<float>>(combine, leaves);
    default:
      return {};
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernel {

HWY_EXPORT(float_steps);

Steps find_float_steps(Lane lane, Combine combine, int leaves) {
  return HWY_DYNAMIC_DISPATCH(float_steps)(lane, combine, leaves);
}

}  // namespace lockstep::kernel
#endif  // HWY_ONCE
