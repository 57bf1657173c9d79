// The vector code of a pass, compiled once per instruction set (Highway's foreach_target).
//
// A pass is put together from two things: a Memory says how elements become vectors of the
// accumulator type and back, an operation says how two vectors become one. Only whole steps are
// here: one body per combination, since there are hundreds of them. pass.cc does the rest.

// Toggles with every target instead of guarding once.
#if defined(LOCKSTEP_KERNEL_PASS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNEL_PASS_INL_H
#undef LOCKSTEP_KERNEL_PASS_INL_H
#else
#define LOCKSTEP_KERNEL_PASS_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "kernel/pass.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernel {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Byte = std::uint8_t;

// ---------------------------------------------------------------- memory

template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_vector(D d, const Byte* from) {
#if HWY_TARGET == HWY_SCALAR  // its LoadU wants an aligned address
  T one;
  std::memcpy(&one, from, sizeof(T));
  return hn::Set(d, one);
#else
  return hn::LoadU(d, reinterpret_cast<const T*>(from));
#endif
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void store_vector(D d, hn::Vec<D> v, Byte* to, Stores stores = Stores::cached) {
#if HWY_TARGET == HWY_SCALAR
  (void)d;
  (void)stores;
  const T one = hn::GetLane(v);
  std::memcpy(to, &one, sizeof(T));
#else
  // The same every time: the processor predicts it.
  if (stores == Stores::around_cache) {
    hn::Stream(v, d, reinterpret_cast<T*>(to));
  } else {
    hn::StoreU(v, d, reinterpret_cast<T*>(to));
  }
#endif
}

/// Elements that are their own accumulator: one vector a step.
template <class T>
struct Plain {
  using Acc = T;
  static constexpr std::size_t kSize = sizeof(T);
  static constexpr int kParts = 1;

  template <int part, class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Byte* from) {
    return load_vector(d, from);
  }
};

// ---------------------------------------------------------------- operations

/// Which NaN an addition returns is left open by the processor and the compiler (operand order,
/// sign): every NaN that arithmetic leaves behind becomes this one.
template <class D>
HWY_INLINE hn::Vec<D> canonical_nan(D d, hn::Vec<D> v) {
  using T = hn::TFromD<D>;
  return hn::IfThenElse(hn::IsNaN(v), hn::Set(d, std::numeric_limits<T>::quiet_NaN()), v);
}

/// By what the result is divided, if at all.
template <class T>
struct Division {
  bool needed;
  T divisor;
};

struct LeafAsIs {
  template <class D>
  static HWY_INLINE hn::Vec<D> leaf(D, hn::Vec<D> v, hn::TFromD<D>) {
    return v;
  }
};

struct ResultAsIs {
  template <class D>
  static HWY_INLINE hn::Vec<D> finish(D, hn::Vec<D> v, Division<hn::TFromD<D>>) {
    return v;
  }
};

struct Sum : LeafAsIs {
  static constexpr Combine kCombine = Combine::sum;
  static constexpr bool kCanonical = true;
  template <class D>
  static HWY_INLINE hn::Vec<D> combine(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::Add(a, b);
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> finish(D d, hn::Vec<D> v, Division<hn::TFromD<D>> division) {
    using T = hn::TFromD<D>;
    if constexpr (std::is_floating_point_v<T>) {
      if (HWY_UNLIKELY(division.needed)) v = hn::Div(v, hn::Set(d, division.divisor));
      return canonical_nan(d, v);
    } else {
      return v;
    }
  }
};

struct WeightedSum : Sum {
  static constexpr Combine kCombine = Combine::weighted_sum;
  // Two roundings: the product, then the sum.
  template <class D>
  static HWY_INLINE hn::Vec<D> leaf(D d, hn::Vec<D> v, hn::TFromD<D> weight) {
    return hn::Mul(v, hn::Set(d, weight));
  }
};

struct Product : LeafAsIs {
  static constexpr Combine kCombine = Combine::product;
  static constexpr bool kCanonical = true;
  template <class D>
  static HWY_INLINE hn::Vec<D> combine(D d, hn::Vec<D> a, hn::Vec<D> b) {
    using T = hn::TFromD<D>;
    constexpr bool kVector = std::is_integral_v<T> && HWY_TARGET != HWY_SCALAR;
    if constexpr (kVector && sizeof(T) == 1) {
      // No 8-bit multiplication: the low byte of a 16-bit product is right for the even bytes, and
      // for the odd ones once they are moved down.
      const hn::RepartitionToWide<D> wide;
      const auto wa = hn::BitCast(wide, a);
      const auto wb = hn::BitCast(wide, b);
      const auto even = hn::And(hn::Mul(wa, wb), hn::Set(wide, 0xFF));
      const auto odd = hn::Mul(hn::ShiftRight<8>(wa), hn::ShiftRight<8>(wb));
      return hn::BitCast(d, hn::Or(even, hn::ShiftLeft<8>(odd)));
    } else if constexpr (kVector && sizeof(T) == 8) {
      // Nor a 64-bit one: three products of 32-bit halves.
      const hn::RepartitionToNarrow<D> narrow;
      const auto low = hn::MulEven(hn::BitCast(narrow, a), hn::BitCast(narrow, b));
      const auto cross =
          hn::Add(hn::MulEven(hn::BitCast(narrow, a), hn::BitCast(narrow, hn::ShiftRight<32>(b))),
                  hn::MulEven(hn::BitCast(narrow, hn::ShiftRight<32>(a)), hn::BitCast(narrow, b)));
      return hn::Add(low, hn::ShiftLeft<32>(cross));
    } else {
      return hn::Mul(a, b);
    }
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> finish(D d, hn::Vec<D> v, Division<hn::TFromD<D>>) {
    if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
      return canonical_nan(d, v);
    } else {
      return v;
    }
  }
};

// Of equals the later one, of NaNs the first: the same on every target and in any association.
struct Minimum : LeafAsIs, ResultAsIs {
  static constexpr Combine kCombine = Combine::min;
  static constexpr bool kCanonical = false;
  template <class D>
  static HWY_INLINE hn::Vec<D> combine(D, hn::Vec<D> a, hn::Vec<D> b) {
    if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
      return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
    } else {
      return hn::Min(a, b);
    }
  }
};

struct Maximum : LeafAsIs, ResultAsIs {
  static constexpr Combine kCombine = Combine::max;
  static constexpr bool kCanonical = false;
  template <class D>
  static HWY_INLINE hn::Vec<D> combine(D, hn::Vec<D> a, hn::Vec<D> b) {
    if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
      return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
    } else {
      return hn::Max(a, b);
    }
  }
};

// ---------------------------------------------------------------- the pass

template <class Acc, int leaves>
struct Leaves {
  const Byte* data[leaves];
  Acc weights[leaves];
};

/// Largest power of two below n.
constexpr int tree_split(int n) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(n - 1)));
}

/// The subtree of `count` leaves from `first`, at byte `at` of every input.
template <class M, class C, int first, int count, int part, class D, int leaves>
HWY_INLINE hn::Vec<D> fold(D d, const Leaves<typename M::Acc, leaves>& in, std::size_t at) {
  if constexpr (count == 1) {
    return C::leaf(d, M::template load<part>(d, in.data[first] + at), in.weights[first]);
  } else {
    constexpr int split = tree_split(count);
    const auto left = fold<M, C, first, split, part>(d, in, at);
    const auto right = fold<M, C, first + split, count - split, part>(d, in, at);
    return C::combine(d, left, right);
  }
}

/// Copies of what a pass says, out of reach of the stores: the compiler may keep them in registers.
struct Places {
  Byte* first;  // null if there are only partials
  void* const* targets;
  std::size_t target_count;
  void* const* partials;
  std::size_t partial_count;
  Stores stores;

  explicit HWY_INLINE Places(const Pass& pass)
      : first(pass.target_count != 0 ? static_cast<Byte*>(pass.targets[0]) : nullptr),
        targets(pass.targets),
        target_count(pass.target_count),
        partials(pass.partials),
        partial_count(pass.partial_count),
        stores(pass.stores) {}
};

template <class D>
HWY_INLINE void store_plain(D d, hn::Vec<D> v, const Places& places, std::size_t at) {
  store_vector(d, v, places.first + at, places.stores);
  for (std::size_t t = 1; t < places.target_count; ++t) {
    store_vector(d, v, static_cast<Byte*>(places.targets[t]) + at, places.stores);
  }
}

/// canonical: every NaN is the canonical one, which rounds like a number.
template <class M, bool canonical, class D>
HWY_INLINE void store_halves(D d, hn::Vec<D> first, hn::Vec<D> second, const Places& places,
                             std::size_t at) {
  if (places.first != nullptr) {
    M::template store<canonical>(d, first, second, places.first + at, places.stores);
  }
  for (std::size_t t = 1; t < places.target_count; ++t) {
    M::template store<canonical>(d, first, second, static_cast<Byte*>(places.targets[t]) + at,
                                 places.stores);
  }
  for (std::size_t t = 0; t < places.partial_count; ++t) {
    M::store_partial(d, first, second, static_cast<Byte*>(places.partials[t]) + 2 * at);
  }
}

/// M: how elements lie in memory, C: the operation.
template <class M, class C, int leaves>
void run_steps(const Pass& pass) {
  using Acc = typename M::Acc;
  const hn::ScalableTag<Acc> d;
  Leaves<Acc, leaves> in;
  for (int i = 0; i < leaves; ++i) {
    in.data[i] = static_cast<const Byte*>(pass.inputs[i]);
    in.weights[i] = pass.weights == nullptr ? Acc{1} : static_cast<Acc>(pass.weights[i]);
  }
  const Places places(pass);
  const Division<Acc> division{pass.divisor != 1, static_cast<Acc>(pass.divisor)};
  const std::size_t step = hn::Lanes(d) * M::kParts * M::kSize;
  const std::size_t end = pass.count * M::kSize;

  std::size_t at = 0;
  if constexpr (M::kParts == 1) {
    if constexpr (leaves <= 4) {  // too little work to hide the loop itself
      for (; at + step < end; at += 2 * step) {
        const auto one = C::finish(d, fold<M, C, 0, leaves, 0>(d, in, at), division);
        const auto two = C::finish(d, fold<M, C, 0, leaves, 0>(d, in, at + step), division);
        store_plain(d, one, places, at);
        store_plain(d, two, places, at + step);
      }
    }
    for (; at < end; at += step) {
      store_plain(d, C::finish(d, fold<M, C, 0, leaves, 0>(d, in, at), division), places, at);
    }
  } else {
    if constexpr (leaves <= 2) {
      for (; at + step < end; at += 2 * step) {
        const auto first = C::finish(d, fold<M, C, 0, leaves, 0>(d, in, at), division);
        const auto second = C::finish(d, fold<M, C, 0, leaves, 1>(d, in, at), division);
        const auto third = C::finish(d, fold<M, C, 0, leaves, 0>(d, in, at + step), division);
        const auto fourth = C::finish(d, fold<M, C, 0, leaves, 1>(d, in, at + step), division);
        store_halves<M, C::kCanonical>(d, first, second, places, at);
        store_halves<M, C::kCanonical>(d, third, fourth, places, at + step);
      }
    }
    for (; at < end; at += step) {
      const auto first = C::finish(d, fold<M, C, 0, leaves, 0>(d, in, at), division);
      const auto second = C::finish(d, fold<M, C, 0, leaves, 1>(d, in, at), division);
      store_halves<M, C::kCanonical>(d, first, second, places, at);
    }
  }
  // Before anybody is told of the result.
  if (places.stores == Stores::around_cache) hwy::FlushStream();
}

template <class M>
constexpr std::size_t step_of() {
  constexpr std::size_t kStep = hn::MaxLanes(hn::ScalableTag<typename M::Acc>()) * M::kParts;
  static_assert(kStep <= kMaxStep && kStep * sizeof(typename M::Acc) <= kMaxStepBytes);
  return kStep;
}

template <class M, class C, int... minus_one>
Steps choose(int leaves, std::integer_sequence<int, minus_one...>) {
  // Null where the fixed tree of so many leaves is left to several passes.
  static constexpr StepFunction kFunctions[] = {[] {
    if constexpr (has_pass(C::kCombine, std::is_floating_point_v<typename M::Acc>, minus_one + 1)) {
      return StepFunction{run_steps<M, C, minus_one + 1>};
    } else {
      return StepFunction{nullptr};
    }
  }()...};
  return {kFunctions[leaves - 1], step_of<M>()};
}

template <class M, class C>
Steps choose(int leaves) {
  return choose<M, C>(leaves, std::make_integer_sequence<int, kMaxLeaves>());
}

/// Every operation of a floating lane.
template <class M>
Steps choose_floating(Combine combine, int leaves) {
  switch (combine) {
    case Combine::sum:
      return choose<M, Sum>(leaves);
    case Combine::weighted_sum:
      return choose<M, WeightedSum>(leaves);
    case Combine::product:
      return choose<M, Product>(leaves);
    case Combine::min:
      return choose<M, Minimum>(leaves);
    case Combine::max:
      return choose<M, Maximum>(leaves);
  }
  return {};
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernel
HWY_AFTER_NAMESPACE();

#endif  // LOCKSTEP_KERNEL_PASS_INL_H
