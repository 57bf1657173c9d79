#include "bench/kernel/streaming.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/kernel/streaming.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h: it includes this file again for every target.
#include <hwy/highway.h>
// For StoreFence.
#include <hwy/cache_control.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep::bench {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <Stores stores, class D>
HWY_INLINE void put(D d, hn::Vec<D> v, hn::TFromD<D>* to) {
  if constexpr (stores == Stores::cached) {
    hn::Store(v, d, to);
  } else {
    hn::Stream(v, d, to);
  }
}

template <int streams, class D>
HWY_INLINE hn::Vec<D> add_all(D d, const float* const (&from)[streams], std::size_t i) {
  auto sum = hn::Load(d, from[0] + i);
  for (int s = 1; s < streams; ++s) sum = hn::Add(sum, hn::Load(d, from[s] + i));
  return sum;
}

template <Stores stores, int streams>
void add_streams(const float* const* inputs, float* to, std::size_t count) {
  const hn::ScalableTag<float> d;
  const float* from[streams];
  for (int s = 0; s < streams; ++s) from[s] = inputs[s];
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t i = 0; i < count; i += 2 * lanes) {
    const auto first = add_all<streams>(d, from, i);
    const auto second = add_all<streams>(d, from, i + lanes);
    put<stores>(d, first, to + i);
    put<stores>(d, second, to + i + lanes);
  }
}

template <Stores stores, int streams>
void all_reduce_streams(const float* const* inputs, float* const* outputs, std::size_t count) {
  const hn::ScalableTag<float> d;
  const float* from[streams];
  float* to[streams];
  for (int s = 0; s < streams; ++s) {
    from[s] = inputs[s];
    to[s] = outputs[s];
  }
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t i = 0; i < count; i += 2 * lanes) {
    const auto first = add_all<streams>(d, from, i);
    const auto second = add_all<streams>(d, from, i + lanes);
    for (int s = 0; s < streams; ++s) {
      put<stores>(d, first, to[s] + i);
      put<stores>(d, second, to[s] + i + lanes);
    }
  }
}

template <Stores stores>
void all_reduce_any(const float* const* from, float* const* to, int streams, std::size_t count) {
  if (streams == 2) return all_reduce_streams<stores, 2>(from, to, count);
  if (streams == 4) return all_reduce_streams<stores, 4>(from, to, count);
  all_reduce_streams<stores, 8>(from, to, count);
}

template <Stores stores>
void add_any(const float* const* from, int streams, float* to, std::size_t count) {
  if (streams == 2) return add_streams<stores, 2>(from, to, count);
  if (streams == 4) return add_streams<stores, 4>(from, to, count);
  add_streams<stores, 8>(from, to, count);
}

template <Stores stores>
void xor_streams(const std::uint16_t* a, const std::uint16_t* b, std::uint16_t* to,
                 std::size_t count) {
  const hn::ScalableTag<std::uint16_t> d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t i = 0; i < count; i += 2 * lanes) {
    const auto first = hn::Xor(hn::Load(d, a + i), hn::Load(d, b + i));
    const auto second = hn::Xor(hn::Load(d, a + i + lanes), hn::Load(d, b + i + lanes));
    put<stores>(d, first, to + i);
    put<stores>(d, second, to + i + lanes);
  }
}

void add_cached(const float* const* from, int streams, float* to, std::size_t count) {
  add_any<Stores::cached>(from, streams, to, count);
}
void add_around(const float* const* from, int streams, float* to, std::size_t count) {
  add_any<Stores::around_the_cache>(from, streams, to, count);
  hwy::FlushStream();
}
void all_reduce_cached(const float* const* from, float* const* to, int streams, std::size_t count) {
  all_reduce_any<Stores::cached>(from, to, streams, count);
}
void all_reduce_around(const float* const* from, float* const* to, int streams, std::size_t count) {
  all_reduce_any<Stores::around_the_cache>(from, to, streams, count);
  hwy::FlushStream();
}
void xor_cached(const std::uint16_t* a, const std::uint16_t* b, std::uint16_t* to,
                std::size_t count) {
  xor_streams<Stores::cached>(a, b, to, count);
}
void xor_around(const std::uint16_t* a, const std::uint16_t* b, std::uint16_t* to,
                std::size_t count) {
  xor_streams<Stores::around_the_cache>(a, b, to, count);
  hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::bench {

HWY_EXPORT(add_cached);
HWY_EXPORT(add_around);
HWY_EXPORT(all_reduce_cached);
HWY_EXPORT(all_reduce_around);
HWY_EXPORT(xor_cached);
HWY_EXPORT(xor_around);

void stream_add(Stores stores, const float* const* from, int streams, float* to,
                std::size_t count) {
  if (stores == Stores::cached) {
    HWY_DYNAMIC_DISPATCH(add_cached)(from, streams, to, count);
  } else {
    HWY_DYNAMIC_DISPATCH(add_around)(from, streams, to, count);
  }
}

void stream_all_reduce(Stores stores, const float* const* from, float* const* to, int streams,
                       std::size_t count) {
  if (stores == Stores::cached) {
    HWY_DYNAMIC_DISPATCH(all_reduce_cached)(from, to, streams, count);
  } else {
    HWY_DYNAMIC_DISPATCH(all_reduce_around)(from, to, streams, count);
  }
}

void stream_xor(Stores stores, const std::uint16_t* a, const std::uint16_t* b, std::uint16_t* to,
                std::size_t count) {
  if (stores == Stores::cached) {
    HWY_DYNAMIC_DISPATCH(xor_cached)(a, b, to, count);
  } else {
    HWY_DYNAMIC_DISPATCH(xor_around)(a, b, to, count);
  }
}

}  // namespace lockstep::bench
#endif  // HWY_ONCE
