#include "kernel/batch_norm.h"

#include <algorithm>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/batch_norm.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h: it includes this file again for every target.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernel {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// At most 256 bits: the passes wait for memory, and processors with longer vectors give the bits
// of those without.
template <class T>
using Vectors = hn::CappedTag<T, 32 / sizeof(T)>;
template <class T>
using One = hn::CappedTag<T, 1>;

// Elements of one channel that are added in their own type. Few enough for its digits and for the
// first-level cache, enough for what is done once a group not to count.
constexpr std::size_t kGroup = 4096;

// Each gives two numbers of every element from i on, given their channels' pivots. `pivot` has
// those of all channels.

template <class T>
struct Deviations {
  const T* values;
  const T* pivot;
  template <class D>
  HWY_INLINE void get(D d, std::size_t i, hn::Vec<D> pivot_of, hn::Vec<D>& first,
                      hn::Vec<D>& second) const {
    first = hn::Sub(hn::LoadU(d, values + i), pivot_of);
    second = hn::Mul(first, first);
  }
};

template <class T>
struct Products {
  const T* values;
  const T* gradients;
  const T* pivot;
  template <class D>
  HWY_INLINE void get(D d, std::size_t i, hn::Vec<D> pivot_of, hn::Vec<D>& first,
                      hn::Vec<D>& second) const {
    first = hn::LoadU(d, gradients + i);
    second = hn::Mul(first, hn::Sub(hn::LoadU(d, values + i), pivot_of));
  }
};

// Adds both numbers of the elements from i on to the sums a and b. The sums are separate references
// because a vector of some targets has no size, so it cannot be a member or an array element.
template <class D, class Term>
HWY_INLINE void add_term(D d, const Term& term, std::size_t i, hn::Vec<D> pivot_of, hn::Vec<D>& a,
                         hn::Vec<D>& b) {
  auto first = a, second = a;
  term.get(d, i, pivot_of, first, second);
  a = hn::Add(a, first);
  b = hn::Add(b, second);
}

// Runs of elements of one channel, one after the other.
struct Runs {
  std::size_t begin;
  std::size_t length;
  std::size_t stride;
  std::size_t count;
};

template <class T>
struct Pair {
  T first;
  T second;
};

template <class T, class Term>
HWY_INLINE Pair<T> sum_runs(const Term& term, const Runs& runs, T pivot) {
  const Vectors<T> d;
  const One<T> one;
  const std::size_t n = hn::Lanes(d);
  const auto pivots = hn::Set(d, pivot);
  const auto one_pivot = hn::Set(one, pivot);
  auto a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0;
  auto b0 = a0, b1 = a0, b2 = a0, b3 = a0;
  auto rest_a = hn::Zero(one), rest_b = rest_a;
  for (std::size_t run = 0; run < runs.count; ++run) {
    std::size_t i = runs.begin + run * runs.stride;
    const std::size_t end = i + runs.length;
    for (; i + 4 * n <= end; i += 4 * n) {
      add_term(d, term, i, pivots, a0, b0);
      add_term(d, term, i + n, pivots, a1, b1);
      add_term(d, term, i + 2 * n, pivots, a2, b2);
      add_term(d, term, i + 3 * n, pivots, a3, b3);
    }
    for (; i + n <= end; i += n) add_term(d, term, i, pivots, a0, b0);
    for (; i < end; ++i) add_term(one, term, i, one_pivot, rest_a, rest_b);
  }
  const auto a = hn::Add(hn::Add(a0, a1), hn::Add(a2, a3));
  const auto b = hn::Add(hn::Add(b0, b1), hn::Add(b2, b3));
  return {static_cast<T>(hn::GetLane(hn::SumOfLanes(d, a)) + hn::GetLane(rest_a)),
          static_cast<T>(hn::GetLane(hn::SumOfLanes(d, b)) + hn::GetLane(rest_b))};
}

// Sums of neighbouring channels over `rows` rows of `channels` elements that begin at `begin`.
// Takes as many vectors of channels as there are from `c` on; returns the next channel.
template <class D, class T, class Term>
HWY_INLINE std::size_t sum_columns(D d, const Term& term, std::size_t begin, std::size_t rows,
                                   std::size_t channels, std::size_t c, Pair<T*> sums) {
  const std::size_t n = hn::Lanes(d);
  for (; c + 4 * n <= channels; c += 4 * n) {
    const auto p0 = hn::LoadU(d, term.pivot + c);
    const auto p1 = hn::LoadU(d, term.pivot + c + n);
    const auto p2 = hn::LoadU(d, term.pivot + c + 2 * n);
    const auto p3 = hn::LoadU(d, term.pivot + c + 3 * n);
    auto a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0;
    auto b0 = a0, b1 = a0, b2 = a0, b3 = a0;
    for (std::size_t row = 0; row < rows; ++row) {
      const std::size_t i = begin + row * channels + c;
      add_term(d, term, i, p0, a0, b0);
      add_term(d, term, i + n, p1, a1, b1);
      add_term(d, term, i + 2 * n, p2, a2, b2);
      add_term(d, term, i + 3 * n, p3, a3, b3);
    }
    hn::StoreU(a0, d, sums.first + c);
    hn::StoreU(a1, d, sums.first + c + n);
    hn::StoreU(a2, d, sums.first + c + 2 * n);
    hn::StoreU(a3, d, sums.first + c + 3 * n);
    hn::StoreU(b0, d, sums.second + c);
    hn::StoreU(b1, d, sums.second + c + n);
    hn::StoreU(b2, d, sums.second + c + 2 * n);
    hn::StoreU(b3, d, sums.second + c + 3 * n);
  }
  for (; c + n <= channels; c += n) {
    const auto p = hn::LoadU(d, term.pivot + c);
    auto a = hn::Zero(d), b = a;
    for (std::size_t row = 0; row < rows; ++row) {
      add_term(d, term, begin + row * channels + c, p, a, b);
    }
    hn::StoreU(a, d, sums.first + c);
    hn::StoreU(b, d, sums.second + c);
  }
  return c;
}

template <class T, class Term>
HWY_INLINE void sum_all_columns(const Term& term, std::size_t begin, std::size_t rows,
                                std::size_t channels, Pair<T*> sums) {
  const std::size_t rest = sum_columns(Vectors<T>(), term, begin, rows, channels, 0, sums);
  sum_columns(One<T>(), term, begin, rows, channels, rest, sums);
}

// Rows of one group where the channels lie last.
std::size_t rows_of_group(std::size_t channels) {
  constexpr std::size_t kLeast = 32;
  return std::max(kLeast, kGroup / std::max<std::size_t>(channels, 1));
}

// Calls each(channel, runs) for every group of elements of one channel, about in the order in which
// they lie in memory.
template <class Each>
HWY_INLINE void for_each_group(const ChannelShape& shape, const Each& each) {
  const std::size_t planes = std::max<std::size_t>(1, kGroup / shape.inner);
  for (std::size_t outer = 0; outer < shape.outer; outer += planes) {
    for (std::size_t c = 0; c < shape.channels; ++c) {
      for (std::size_t i = 0; i < shape.inner; i += kGroup) {
        each(c, Runs{.begin = (outer * shape.channels + c) * shape.inner + i,
                     .length = std::min(kGroup, shape.inner - i),
                     .stride = shape.channels * shape.inner,
                     .count = std::min(planes, shape.outer - outer)});
      }
    }
  }
}

// Moments of `count` values, given the sums of their deviations from a pivot and of the squares of
// those.
template <class T>
Moments moments_of(T pivot, T deviations, T squares, std::size_t count) {
  const auto n = static_cast<double>(count);
  const double sum = deviations;
  const double around_mean = squares - sum * sum / n;
  return {n, pivot + sum / n, around_mean < 0 ? 0 : around_mean};  // NaN stays
}

// One pass: the deviations are those from the mean of the groups before. What cancels then is at
// most as large as what the group adds to the squares of the whole channel. The first group is read
// twice.
template <class T>
void moments_of_planes(const T* values, const ChannelShape& shape, Moments* result) {
  const Deviations<T> term{values, nullptr};
  for_each_group(shape, [&](std::size_t c, const Runs& runs) HWY_ATTR {
    const std::size_t count = runs.length * runs.count;
    auto pivot = static_cast<T>(result[c].mean);
    if (result[c].count == 0) {
      const T some = values[runs.begin];
      const Pair<T> sums = sum_runs(term, runs, some);
      pivot = static_cast<T>(moments_of(some, sums.first, sums.second, count).mean);
    }
    const Pair<T> sums = sum_runs(term, runs, pivot);
    result[c].add(moments_of(pivot, sums.first, sums.second, count));
  });
}

template <class T>
void moments_of_columns(const T* values, const ChannelShape& shape, Moments* result) {
  const std::size_t channels = shape.channels;
  const std::size_t group = rows_of_group(channels);
  std::vector<T> scratch(3 * channels);
  T* const pivot = scratch.data();
  const Pair<T*> sums{pivot + channels, pivot + 2 * channels};
  const Deviations<T> term{values, pivot};
  std::copy_n(values, shape.outer > 0 ? channels : 0, pivot);
  for (std::size_t row = 0; row < shape.outer; row += group) {
    const std::size_t rows = std::min(group, shape.outer - row);
    const auto moments = [&](std::size_t c) {
      return moments_of(pivot[c], sums.first[c], sums.second[c], rows);
    };
    sum_all_columns(term, row * channels, rows, channels, sums);
    if (row == 0) {
      for (std::size_t c = 0; c < channels; ++c) pivot[c] = static_cast<T>(moments(c).mean);
      sum_all_columns(term, row * channels, rows, channels, sums);
    }
    for (std::size_t c = 0; c < channels; ++c) {
      result[c].add(moments(c));
      pivot[c] = static_cast<T>(result[c].mean);
    }
  }
}

template <class T>
void moments_of_all(const T* values, const ChannelShape& shape, Moments* result) {
  std::fill_n(result, shape.channels, Moments());
  if (shape.inner == 1) moments_of_columns(values, shape, result);
  if (shape.inner > 1) moments_of_planes(values, shape, result);
}

template <class T>
void gradient_sums(const GradientMemory<T>& memory, const ChannelShape& shape, const T* centre,
                   GradientSums* result) {
  std::fill_n(result, shape.channels, GradientSums());
  const Products<T> term{memory.values, memory.gradients, centre};
  const auto add = [&](std::size_t c, T gradients, T products) {
    result[c].gradients += gradients;
    result[c].products += products;
  };
  if (shape.inner > 1) {
    for_each_group(shape, [&](std::size_t c, const Runs& runs) HWY_ATTR {
      const Pair<T> sums = sum_runs(term, runs, centre[c]);
      add(c, sums.first, sums.second);
    });
  } else if (shape.inner == 1) {
    const std::size_t channels = shape.channels;
    const std::size_t group = rows_of_group(channels);
    std::vector<T> scratch(2 * channels);
    const Pair<T*> sums{scratch.data(), scratch.data() + channels};
    for (std::size_t row = 0; row < shape.outer; row += group) {
      sum_all_columns(term, row * channels, std::min(group, shape.outer - row), channels, sums);
      for (std::size_t c = 0; c < channels; ++c) add(c, sums.first[c], sums.second[c]);
    }
  }
}

// Element by element: (value - centre) * scale + shift, and a gradient times a factor if there is
// one.

template <class T>
struct Affine {
  const T* values;
  NormalizeFactors<T> factors;
  T* result;

  template <class D, class Get>
  HWY_INLINE void apply(D d, std::size_t i, const Get& get) const {
    const auto centred = hn::Sub(hn::LoadU(d, values + i), get(d, factors.centre));
    const auto scaled = hn::Mul(centred, get(d, factors.scale));
    hn::StoreU(hn::Add(scaled, get(d, factors.shift)), d, result + i);
  }
};

template <class T>
struct AffineWithGradient {
  GradientMemory<T> memory;
  GradientFactors<T> factors;
  T* result;

  template <class D, class Get>
  HWY_INLINE void apply(D d, std::size_t i, const Get& get) const {
    const auto centred = hn::Sub(hn::LoadU(d, memory.values + i), get(d, factors.centre));
    const auto of_value = hn::Mul(centred, get(d, factors.of_value));
    const auto of_gradient =
        hn::Mul(hn::LoadU(d, memory.gradients + i), get(d, factors.of_gradient));
    hn::StoreU(hn::Add(hn::Add(of_gradient, of_value), get(d, factors.shift)), d, result + i);
  }
};

// A channel's number for all lanes, or the numbers of neighbouring channels.
struct Same {
  std::size_t c;
  template <class D, class T>
  HWY_INLINE hn::Vec<D> operator()(D d, const T* numbers) const {
    return hn::Set(d, numbers[c]);
  }
};
struct Neighbours {
  std::size_t c;
  template <class D, class T>
  HWY_INLINE hn::Vec<D> operator()(D d, const T* numbers) const {
    return hn::LoadU(d, numbers + c);
  }
};

template <class T, class Element>
HWY_INLINE void element_by_element(const Element& element, const ChannelShape& shape) {
  const Vectors<T> d;
  const One<T> one;
  const std::size_t n = hn::Lanes(d);
  std::size_t i = 0;
  if (shape.inner == 1) {
    for (std::size_t row = 0; row < shape.outer; ++row) {
      std::size_t c = 0;
      for (; c + n <= shape.channels; c += n) element.apply(d, i + c, Neighbours{c});
      for (; c < shape.channels; ++c) element.apply(one, i + c, Neighbours{c});
      i += shape.channels;
    }
    return;
  }
  for (std::size_t plane = 0; plane < shape.outer * shape.channels; ++plane) {
    const Same channel{plane % shape.channels};
    const std::size_t end = i + shape.inner;
    for (; i + n <= end; i += n) element.apply(d, i, channel);
    for (; i < end; ++i) element.apply(one, i, channel);
  }
}

void moments_f32(const float* values, const ChannelShape& shape, Moments* result) {
  moments_of_all(values, shape, result);
}
void moments_f64(const double* values, const ChannelShape& shape, Moments* result) {
  moments_of_all(values, shape, result);
}
void normalize_f32(const float* values, const ChannelShape& shape, NormalizeFactors<float> factors,
                   float* result) {
  element_by_element<float>(Affine<float>{values, factors, result}, shape);
}
void normalize_f64(const double* values, const ChannelShape& shape,
                   NormalizeFactors<double> factors, double* result) {
  element_by_element<double>(Affine<double>{values, factors, result}, shape);
}
void gradient_sums_f32(const GradientMemory<float>& memory, const ChannelShape& shape,
                       const float* centre, GradientSums* result) {
  gradient_sums(memory, shape, centre, result);
}
void gradient_sums_f64(const GradientMemory<double>& memory, const ChannelShape& shape,
                       const double* centre, GradientSums* result) {
  gradient_sums(memory, shape, centre, result);
}
void input_gradient_f32(const GradientMemory<float>& memory, const ChannelShape& shape,
                        const GradientFactors<float>& factors, float* result) {
  element_by_element<float>(AffineWithGradient<float>{memory, factors, result}, shape);
}
void input_gradient_f64(const GradientMemory<double>& memory, const ChannelShape& shape,
                        const GradientFactors<double>& factors, double* result) {
  element_by_element<double>(AffineWithGradient<double>{memory, factors, result}, shape);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernel {

HWY_EXPORT(moments_f32);
HWY_EXPORT(moments_f64);
HWY_EXPORT(normalize_f32);
HWY_EXPORT(normalize_f64);
HWY_EXPORT(gradient_sums_f32);
HWY_EXPORT(gradient_sums_f64);
HWY_EXPORT(input_gradient_f32);
HWY_EXPORT(input_gradient_f64);

void channel_moments(const float* values, const ChannelShape& shape, Moments* result) {
  HWY_DYNAMIC_DISPATCH(moments_f32)(values, shape, result);
}
void channel_moments(const double* values, const ChannelShape& shape, Moments* result) {
  HWY_DYNAMIC_DISPATCH(moments_f64)(values, shape, result);
}
void normalize(const float* values, const ChannelShape& shape, NormalizeFactors<float> factors,
               float* result) noexcept {
  HWY_DYNAMIC_DISPATCH(normalize_f32)(values, shape, factors, result);
}
void normalize(const double* values, const ChannelShape& shape, NormalizeFactors<double> factors,
               double* result) noexcept {
  HWY_DYNAMIC_DISPATCH(normalize_f64)(values, shape, factors, result);
}
void channel_gradient_sums(const GradientMemory<float>& memory, const ChannelShape& shape,
                           const float* centre, GradientSums* result) {
  HWY_DYNAMIC_DISPATCH(gradient_sums_f32)(memory, shape, centre, result);
}
void channel_gradient_sums(const GradientMemory<double>& memory, const ChannelShape& shape,
                           const double* centre, GradientSums* result) {
  HWY_DYNAMIC_DISPATCH(gradient_sums_f64)(memory, shape, centre, result);
}
void input_gradient(const GradientMemory<float>& memory, const ChannelShape& shape,
                    const GradientFactors<float>& factors, float* result) noexcept {
  HWY_DYNAMIC_DISPATCH(input_gradient_f32)(memory, shape, factors, result);
}
void input_gradient(const GradientMemory<double>& memory, const ChannelShape& shape,
                    const GradientFactors<double>& factors, double* result) noexcept {
  HWY_DYNAMIC_DISPATCH(input_gradient_f64)(memory, shape, factors, result);
}

}  // namespace lockstep::kernel
#endif  // HWY_ONCE
