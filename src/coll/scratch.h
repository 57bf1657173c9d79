// Scratch: memory of the engine's own, kept from call to call. One thread at a time.
#pragma once

#include <cstddef>
#include <memory>

namespace lockstep::coll {

class Scratch {
 public:
  /// At least so many bytes, aligned to a cache line; what was there before is lost.
  std::byte* reserve(std::size_t bytes);

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace lockstep::coll
