// Element types that collectives and kernels understand, and how C++ types map to them.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace lockstep {

enum class DType : std::uint8_t {
  float64,
  float32,
  float16,
  bfloat16,
  int8,
  int16,
  int32,
  int64,
  uint8,
  boolean,
  complex64,
  complex128,
};

inline constexpr int kDTypeCount = 12;

/// Bytes of one element.
constexpr std::size_t size_of(DType type) noexcept {
  constexpr std::size_t sizes[kDTypeCount] = {8, 4, 2, 2, 1, 2, 4, 8, 1, 1, 8, 16};
  return sizes[static_cast<std::size_t>(type)];
}

std::string_view to_string(DType type) noexcept;

constexpr bool is_integer(DType type) noexcept {
  return type >= DType::int8 && type <= DType::uint8;
}
constexpr bool is_complex(DType type) noexcept { return type >= DType::complex64; }

/// The type partial sums are kept in: float32 for the 16-bit types, else the type itself.
constexpr DType accumulator_of(DType type) noexcept {
  return type == DType::float16 || type == DType::bfloat16 ? DType::float32 : type;
}

/// IEEE half and bfloat16 as storage only: bits to move and reduce, no arithmetic.
struct Float16 {
  std::uint16_t bits;
  friend bool operator==(Float16, Float16) = default;
};
struct BFloat16 {
  std::uint16_t bits;
  friend bool operator==(BFloat16, BFloat16) = default;
};

namespace detail {
template <class T>
struct DTypeOf {};
template <DType value_>
struct DTypeIs {
  static constexpr DType value = value_;
};
template <>
struct DTypeOf<double> : DTypeIs<DType::float64> {};
template <>
struct DTypeOf<float> : DTypeIs<DType::float32> {};
template <>
struct DTypeOf<Float16> : DTypeIs<DType::float16> {};
template <>
struct DTypeOf<BFloat16> : DTypeIs<DType::bfloat16> {};
template <>
struct DTypeOf<std::int8_t> : DTypeIs<DType::int8> {};
template <>
struct DTypeOf<std::int16_t> : DTypeIs<DType::int16> {};
template <>
struct DTypeOf<std::int32_t> : DTypeIs<DType::int32> {};
template <>
struct DTypeOf<std::int64_t> : DTypeIs<DType::int64> {};
template <>
struct DTypeOf<std::uint8_t> : DTypeIs<DType::uint8> {};
template <>
struct DTypeOf<bool> : DTypeIs<DType::boolean> {};
template <>
struct DTypeOf<std::complex<float>> : DTypeIs<DType::complex64> {};
template <>
struct DTypeOf<std::complex<double>> : DTypeIs<DType::complex128> {};
}  // namespace detail

/// A C++ type that can be an element of a collective.
template <class T>
concept Element = requires {
  detail::DTypeOf<std::remove_cv_t<T>>::value;
};

template <Element T>
inline constexpr DType dtype_of = detail::DTypeOf<std::remove_cv_t<T>>::value;

}  // namespace lockstep
