// BenchMemory: the elements of one buffer of a rank, in its own memory or in the session's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "lockstep/coll/session.h"
#include "trial.h"

namespace lockstep::tool {

class BenchMemory {
 public:
  BenchMemory(coll::Session& group, Owner owner, DType dtype, std::uint64_t count);

  [[nodiscard]] std::byte* data() const { return owned_ ? owned_.get() : shared_.data(); }
  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] coll::Buffer buffer() const { return {dtype_, data(), count_}; }
  /// Bits that no pattern has.
  void spoil() const;

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  DType dtype_;
  std::uint64_t count_;
  std::unique_ptr<std::byte, Free> owned_;
  coll::Memory shared_;
};

}  // namespace lockstep::tool
