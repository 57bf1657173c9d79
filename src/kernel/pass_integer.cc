// Passes over integers. They wrap, so sums and products are unsigned; bool is a byte of 0 or 1.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/pass_integer.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h: it includes this file again for every target.
#include "kernel/pass-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernel {
namespace HWY_NAMESPACE {

template <class T>
Steps choose_integer(Combine combine, int leaves) {
  using Unsigned = std::make_unsigned_t<T>;
  switch (combine) {
    case Combine::sum:
      return choose<Plain<Unsigned>, Sum>(leaves);
    case Combine::product:
      return choose<Plain<Unsigned>, Product>(leaves);
    case Combine::min:
      return choose<Plain<T>, Minimum>(leaves);
    case Combine::max:
      return choose<Plain<T>, Maximum>(leaves);
    case Combine::weighted_sum:
      break;
  }
  return {};
}

Steps integer_steps(Lane lane, Combine combine, int leaves) {
  switch (lane) {
    case Lane::i8:
      return choose_integer<std::int8_t>(combine, leaves);
    case Lane::i16:
      return choose_integer<std::int16_t>(combine, leaves);
    case Lane::i32:
      return choose_integer<std::int32_t>(combine, leaves);
    case Lane::i64:
      return choose_integer<std::int64_t>(combine, leaves);
    case Lane::u8:
      return choose_integer<std::uint8_t>(combine, leaves);
    default:
      return {};
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernel {

HWY_EXPORT(integer_steps);

Steps find_integer_steps(Lane lane, Combine combine, int leaves) {
  return HWY_DYNAMIC_DISPATCH(integer_steps)(lane, combine, leaves);
}

}  // namespace lockstep::kernel
#endif  // HWY_ONCE
