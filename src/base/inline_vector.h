// InlineVector: a growing array whose first N elements need no allocation. For trivially copyable
// elements on paths where an allocation per call would cost more than the call.
#pragma once

#include <cstddef>
#include <new>
#include <span>
#include <type_traits>
#include <vector>

namespace lockstep {

template <class T, std::size_t N>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  InlineVector() = default;
  // Spans into the elements would dangle.
  InlineVector(const InlineVector&) = delete;
  InlineVector& operator=(const InlineVector&) = delete;

  void push_back(const T& value) {
    if (size_ < N) {
      new (inline_ + size_ * sizeof(T)) T(value);
    } else {
      if (size_ == N) heap_.assign(inline_data(), inline_data() + N);
      heap_.push_back(value);
    }
    ++size_;
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  T* data() noexcept { return size_ <= N ? inline_data() : heap_.data(); }
  T& operator[](std::size_t i) noexcept { return data()[i]; }
  T* begin() noexcept { return data(); }
  T* end() noexcept { return data() + size_; }
  std::span<T> span() noexcept { return {data(), size_}; }

 private:
  T* inline_data() noexcept { return std::launder(reinterpret_cast<T*>(inline_)); }

  std::size_t size_ = 0;
  std::vector<T> heap_;
  alignas(T) std::byte inline_[N * sizeof(T)];
};

}  // namespace lockstep
