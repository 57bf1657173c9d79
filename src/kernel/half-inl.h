// How bfloat16 and float16 become float32 vectors and back, once per instruction set.
//
// A step is two vectors of float32, "first" and "second", out of twice as many 16-bit elements. On
// most targets they are the even and the odd elements, which shifts and masks separate without
// moving anything across lanes; where the processor converts float16 itself they are the lower and
// the upper half. Highway's own conversions truncate bfloat16 and lose float16 NaNs, so the
// arithmetic is spelled out here and matches round.h bit for bit.

#if defined(LOCKSTEP_KERNEL_HALF_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNEL_HALF_INL_H
#undef LOCKSTEP_KERNEL_HALF_INL_H
#else
#define LOCKSTEP_KERNEL_HALF_INL_H
#endif

#include <bit>

#include "kernel/pass-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernel {
namespace HWY_NAMESPACE {

static_assert(std::endian::native == std::endian::little, "the even element is the lower half");

// Targets with F16C: vcvtph2ps is exact and quiets NaNs, vcvtps2ph is told to round to nearest
// even. Both agree with round.h.
#undef LOCKSTEP_HAVE_F16C
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
#define LOCKSTEP_HAVE_F16C 1
#else
#define LOCKSTEP_HAVE_F16C 0
#endif

template <class D>
using Bits = hn::Vec<hn::RebindToUnsigned<D>>;

/// float32 -> bfloat16 in the upper 16 bits; the lower ones are left over.
template <bool canonical, class D>
HWY_INLINE Bits<D> round_to_bfloat16(D d, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto last = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7FFF)), last);
  if constexpr (canonical) {
    (void)d;
    return rounded;  // 0x7FC00000 keeps its upper half
  } else {
    const auto quiet = hn::Or(bits, hn::Set(du, 0x0040'0000));
    return hn::BitCast(
        du, hn::IfThenElse(hn::IsNaN(v), hn::BitCast(d, quiet), hn::BitCast(d, rounded)));
  }
}

/// float16 in the lower 16 bits -> float32.
template <class D>
HWY_INLINE hn::Vec<D> promote_float16(D d, Bits<D> bits) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFF));
  const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
  const auto rebias = hn::Set(du, 112U << 23);
  const auto ordered = hn::BitCast(di, magnitude);  // small enough for signed comparisons

  auto result = hn::Add(hn::ShiftLeft<13>(magnitude), rebias);
  const auto special = hn::Gt(ordered, hn::Set(di, 0x7BFF));
  const auto nan = hn::Gt(ordered, hn::Set(di, 0x7C00));
  result = hn::Add(result, hn::And(hn::BitCast(du, hn::VecFromMask(di, special)), rebias));
  result =
      hn::Or(result, hn::And(hn::BitCast(du, hn::VecFromMask(di, nan)), hn::Set(du, 0x0040'0000)));
  // Zero and subnormals: units of 2^-24.
  const auto tiny = hn::Mul(hn::ConvertTo(d, ordered), hn::Set(d, 0x1p-24F));
  const auto small = hn::RebindMask(du, hn::Lt(ordered, hn::Set(di, 0x0400)));
  result = hn::IfThenElse(small, hn::BitCast(du, tiny), result);
  return hn::BitCast(d, hn::Or(result, sign));
}

/// float32 -> float16 in the lower 16 bits; the upper ones are zero.
template <class D>
HWY_INLINE Bits<D> demote_float16(D d, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(du, v);
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFF'FFFF));
  const auto sign = hn::ShiftRight<16>(hn::Xor(bits, magnitude));
  const auto ordered = hn::BitCast(di, magnitude);

  // Normal: drop 13 bits, ties to even; what is too large ends at infinity.
  const auto last = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1));
  const auto rounded =
      hn::Add(hn::Add(magnitude, hn::Set(du, 0xFFFU - (112U << 23))), last);  // wraps if small
  auto result =
      hn::BitCast(du, hn::Min(hn::BitCast(di, hn::ShiftRight<13>(rounded)), hn::Set(di, 0x7C00)));
  // Subnormal: adding 0.5 lets the adder round to units of 2^-24.
  const auto shifted = hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5F));
  const auto tiny = hn::Sub(hn::BitCast(du, shifted), hn::Set(du, 0x3F00'0000));
  const auto small = hn::RebindMask(du, hn::Lt(ordered, hn::Set(di, 0x3880'0000)));
  result = hn::IfThenElse(small, tiny, result);
  const auto payload = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x3FF));
  const auto nan = hn::RebindMask(du, hn::Gt(ordered, hn::Set(di, 0x7F80'0000)));
  result = hn::IfThenElse(nan, hn::Or(payload, hn::Set(du, 0x7E00)), result);
  return hn::Or(result, sign);
}

template <class D>
HWY_INLINE void store_interleaved(D d, hn::Vec<D> even, hn::Vec<D> odd, Byte* to) {
#if HWY_TARGET == HWY_SCALAR
  store_vector(d, even, to);
  store_vector(d, odd, to + sizeof(float));
#else
  hn::StoreInterleaved2(even, odd, d, reinterpret_cast<float*>(to));
#endif
}

template <class D>
HWY_INLINE void load_interleaved(D d, const Byte* from, hn::Vec<D>& even, hn::Vec<D>& odd) {
#if HWY_TARGET == HWY_SCALAR
  even = load_vector(d, from);
  odd = load_vector(d, from + sizeof(float));
#else
  hn::LoadInterleaved2(d, reinterpret_cast<const float*>(from), even, odd);
#endif
}

struct HalfMemory {
  using Acc = float;
  static constexpr std::size_t kSize = 2;
  static constexpr int kParts = 2;
};

struct BFloat16Memory : HalfMemory {
  template <int part, class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Byte* from) {
    const hn::RebindToUnsigned<D> du;
    const auto pair = load_vector(du, from);
    if constexpr (part == 0) {
      return hn::BitCast(d, hn::ShiftLeft<16>(pair));
    } else {
      return hn::BitCast(d, hn::And(pair, hn::Set(du, 0xFFFF'0000)));
    }
  }
  template <bool canonical, class D>
  static HWY_INLINE void store(D d, hn::Vec<D> even, hn::Vec<D> odd, Byte* to, Stores stores) {
    const hn::RebindToUnsigned<D> du;
    const auto low = hn::ShiftRight<16>(round_to_bfloat16<canonical>(d, even));
    const auto high = hn::And(round_to_bfloat16<canonical>(d, odd), hn::Set(du, 0xFFFF'0000));
    store_vector(du, hn::Or(low, high), to, stores);
  }
  template <class D>
  static HWY_INLINE void store_partial(D d, hn::Vec<D> even, hn::Vec<D> odd, Byte* to) {
    store_interleaved(d, even, odd, to);
  }
  template <class D>
  static HWY_INLINE void load_partial(D d, const Byte* from, hn::Vec<D>& even, hn::Vec<D>& odd) {
    load_interleaved(d, from, even, odd);
  }
};

struct Float16Memory : HalfMemory {
#if LOCKSTEP_HAVE_F16C
  template <int part, class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Byte* from) {
    const hn::Rebind<hwy::float16_t, D> dh;
    return hn::PromoteTo(d, load_vector(dh, from + part * hn::Lanes(d) * 2));
  }
  template <bool canonical, class D>
  static HWY_INLINE void store(D d, hn::Vec<D> lower, hn::Vec<D> upper, Byte* to, Stores stores) {
    const hn::Rebind<hwy::float16_t, D> dh;
    store_vector(dh, hn::DemoteTo(dh, lower), to, stores);
    store_vector(dh, hn::DemoteTo(dh, upper), to + hn::Lanes(d) * 2, stores);
  }
  template <class D>
  static HWY_INLINE void store_partial(D d, hn::Vec<D> lower, hn::Vec<D> upper, Byte* to) {
    store_vector(d, lower, to);
    store_vector(d, upper, to + hn::Lanes(d) * sizeof(float));
  }
  template <class D>
  static HWY_INLINE void load_partial(D d, const Byte* from, hn::Vec<D>& lower, hn::Vec<D>& upper) {
    lower = load_vector(d, from);
    upper = load_vector(d, from + hn::Lanes(d) * sizeof(float));
  }
#else
  template <int part, class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Byte* from) {
    const hn::RebindToUnsigned<D> du;
    const auto pair = load_vector(du, from);
    if constexpr (part == 0) {
      return promote_float16(d, hn::And(pair, hn::Set(du, 0xFFFF)));
    } else {
      return promote_float16(d, hn::ShiftRight<16>(pair));
    }
  }
  template <bool canonical, class D>
  static HWY_INLINE void store(D d, hn::Vec<D> even, hn::Vec<D> odd, Byte* to, Stores stores) {
    const hn::RebindToUnsigned<D> du;
    const auto high = hn::ShiftLeft<16>(demote_float16(d, odd));
    store_vector(du, hn::Or(demote_float16(d, even), high), to, stores);
  }
  template <class D>
  static HWY_INLINE void store_partial(D d, hn::Vec<D> even, hn::Vec<D> odd, Byte* to) {
    store_interleaved(d, even, odd, to);
  }
  template <class D>
  static HWY_INLINE void load_partial(D d, const Byte* from, hn::Vec<D>& even, hn::Vec<D>& odd) {
    load_interleaved(d, from, even, odd);
  }
#endif
};

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernel
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_KERNEL_HALF_INL_H
