// The passes over memory of batch normalisation: statistics of every channel, and what is computed
// from them element by element.
//
// An array is dense, outer x channels x inner elements: [N, C, H * W] of images, [N, C, 1] of rows
// of features, [N * H * W, C, 1] of images whose channels lie last. Elements are added in an order
// that depends on these three numbers and the vector length alone, in their own type within a group
// of a few thousand, in double between groups.
#pragma once

#include <cstddef>

namespace lockstep::kernel {

struct ChannelShape {
  std::size_t outer;
  std::size_t channels;
  std::size_t inner;

  /// Elements of one channel.
  [[nodiscard]] std::size_t count() const noexcept { return outer * inner; }
};

/// Mean, and sum of squared deviations from it, of `count` values.
struct Moments {
  double count = 0;
  double mean = 0;
  double squares = 0;

  /// Adds the values another one stands for. (a + b) + c and a + (b + c) differ in the last bits.
  void add(const Moments& other) noexcept {
    if (other.count == 0) return;
    const double total = count + other.count;
    const double difference = other.mean - mean;
    mean += difference * (other.count / total);
    squares += other.squares + difference * difference * (count * (other.count / total));
    count = total;
  }
};

/// Writes the moments of every channel to `result`.
void channel_moments(const float* values, const ChannelShape& shape, Moments* result);
void channel_moments(const double* values, const ChannelShape& shape, Moments* result);

/// Numbers of each channel.
template <class T>
struct NormalizeFactors {
  const T* centre;
  const T* scale;
  const T* shift;
};
/// (value - centre) * scale + shift
void normalize(const float* values, const ChannelShape& shape, NormalizeFactors<float> factors,
               float* result) noexcept;
void normalize(const double* values, const ChannelShape& shape, NormalizeFactors<double> factors,
               double* result) noexcept;

/// Sums over a channel's elements.
struct GradientSums {
  double gradients = 0;
  double products = 0;  // gradient * (value - centre)
};
template <class T>
struct GradientMemory {
  const T* values;
  const T* gradients;  // of the results of normalize()
};
void channel_gradient_sums(const GradientMemory<float>& memory, const ChannelShape& shape,
                           const float* centre, GradientSums* result);
void channel_gradient_sums(const GradientMemory<double>& memory, const ChannelShape& shape,
                           const double* centre, GradientSums* result);

/// Numbers of each channel.
template <class T>
struct GradientFactors {
  const T* centre;
  const T* of_gradient;
  const T* of_value;
  const T* shift;
};
/// gradient * of_gradient + (value - centre) * of_value + shift
void input_gradient(const GradientMemory<float>& memory, const ChannelShape& shape,
                    const GradientFactors<float>& factors, float* result) noexcept;
void input_gradient(const GradientMemory<double>& memory, const ChannelShape& shape,
                    const GradientFactors<double>& factors, double* result) noexcept;

}  // namespace lockstep::kernel
