// Buffer: the caller's memory as collectives see it: a place, an element type and a count. A view;
// it owns nothing, and the memory must stay valid until the operation is over.
//
//   std::vector<float> x(1000);
//   group.all_reduce(Op::sum, std::span(x));      // a span converts: these are parameter types
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/dtype.h"

namespace lockstep::coll {

class ConstBuffer {
 public:
  ConstBuffer() = default;
  ConstBuffer(DType dtype, const void* data, std::size_t count) noexcept
      : data_(data), count_(count), dtype_(dtype) {}
  template <Element T, std::size_t N>
  ConstBuffer(std::span<T, N> elements) noexcept
      : ConstBuffer(dtype_of<T>, elements.data(), elements.size()) {}

  [[nodiscard]] const void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return count_ * size_of(dtype_); }

 private:
  const void* data_ = nullptr;
  std::size_t count_ = 0;
  DType dtype_ = DType::uint8;
};

/// A ConstBuffer that may be written.
class Buffer : public ConstBuffer {
 public:
  Buffer() = default;
  Buffer(DType dtype, void* data, std::size_t count) noexcept : ConstBuffer(dtype, data, count) {}
  template <Element T, std::size_t N>
  requires(!std::is_const_v<T>) Buffer(std::span<T, N> elements)
  noexcept : ConstBuffer(elements) {}

  [[nodiscard]] void* data() const noexcept { return const_cast<void*>(ConstBuffer::data()); }
};

/// What a rank gives to a reduction: one buffer, or one for each of its replicas, in replica order.
class Inputs {
 public:
  template <Element T, std::size_t N>
  Inputs(std::span<T, N> elements) noexcept : one_(elements) {}
  Inputs(ConstBuffer one) noexcept : one_(one) {}
  Inputs(std::span<const ConstBuffer> each) noexcept : each_(each), several_(true) {}

  [[nodiscard]] std::span<const ConstBuffer> list() const noexcept {
    return several_ ? each_ : std::span(&one_, 1);
  }

 private:
  ConstBuffer one_;
  std::span<const ConstBuffer> each_;
  bool several_ = false;
};

}  // namespace lockstep::coll
