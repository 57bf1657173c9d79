// Memory: a buffer that the session gives. Collectives over such buffers are fastest: ranks of the
// same host read and write them in place. Every rank gives memory of the session to an operation,
// or every rank memory of its own; where one differs, the operation is a Mismatch.
//
//   Memory gradients = group.allocate(bytes);
//   std::span<float> values = gradients.as<float>();
//
// It may outlive the session, as ordinary memory; but when a group has failed, a rank that was
// given up may still write into it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "lockstep/dtype.h"

namespace lockstep::coll {

class Memory {
 public:
  Memory() = default;
  Memory(std::shared_ptr<std::byte> data, std::size_t size) noexcept
      : data_(std::move(data)), size_(size) {}

  [[nodiscard]] std::byte* data() const noexcept { return data_.get(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }  // bytes
  /// As elements; a rest that is no whole element is left out.
  template <Element T>
  [[nodiscard]] std::span<T> as() const noexcept {
    return {reinterpret_cast<T*>(data_.get()), size_ / sizeof(T)};
  }

 private:
  std::shared_ptr<std::byte> data_;
  std::size_t size_ = 0;
};

}  // namespace lockstep::coll
