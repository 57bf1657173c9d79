// Begun: the operation that a group's link has begun last, and the fingerprint of what it asks for.
//
// One thread writes, any may read. Of a rank that goes on meanwhile, a reader may see the request of
// a later operation; of one that waits it sees what belongs together.
#pragma once

#include <atomic>
#include <cstdint>

namespace lockstep::transport {

class Begun {
 public:
  void set(std::uint64_t sequence, std::uint64_t request) noexcept {
    request_.store(request, std::memory_order_relaxed);
    sequence_.store(sequence, std::memory_order_release);
  }
  /// 0: none yet.
  [[nodiscard]] std::uint64_t sequence() const noexcept {
    return sequence_.load(std::memory_order_acquire);
  }
  [[nodiscard]] std::uint64_t request() const noexcept {
    return request_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> sequence_ = 0;
  std::atomic<std::uint64_t> request_ = 0;
};

}  // namespace lockstep::transport
