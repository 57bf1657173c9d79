// Outgoing: what still has to be written to one peer, in order, as frames.
//
// Headers, descriptors and short payloads are gathered in one small buffer, so that a small
// operation leaves in one write; long payloads are written from where they lie. A checksum is
// computed when the frame is made, right before its payload is written. Private to StreamLink; one
// thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sys/net.h"
#include "wire/frame.h"

namespace lockstep::transport {

class Outgoing {
 public:
  Outgoing(std::uint64_t generation, wire::Check check) noexcept
      : generation_(generation), check_(check) {}

  /// What is queued from now on belongs to this operation. Only while empty.
  void begin(const wire::Descriptor& descriptor) noexcept;
  [[nodiscard]] std::uint64_t sequence() const noexcept { return descriptor_.sequence; }
  /// The bytes stay unchanged until empty().
  void add(std::span<const std::byte> bytes);
  [[nodiscard]] bool empty() const noexcept {
    return first_ == queue_.size() && body_.empty() && sent_ == staged_;
  }
  /// Bytes of add() that are still to be taken from where they lie.
  [[nodiscard]] std::uint64_t untouched() const noexcept;
  /// Writes what the connection takes now; broken: no more will ever go.
  sys::Transfer::State flush(sys::Connection& connection) noexcept;

 private:
  void stage();
  [[nodiscard]] std::size_t room() const noexcept { return staging_.size() - staged_; }
  void stage_header(wire::FrameType type, std::span<const std::byte> payload) noexcept;
  void stage_bytes(std::span<const std::byte> bytes) noexcept;

  static constexpr std::size_t kShort = 1024;  // payloads up to this are copied
  static constexpr std::size_t kStaging = 2048;

  std::uint64_t generation_;
  wire::Check check_;
  wire::Descriptor descriptor_;
  bool announced_ = false;
  std::vector<std::span<const std::byte>> queue_;  // from first_
  std::size_t first_ = 0;
  std::array<std::byte, kStaging> staging_;
  std::size_t staged_ = 0;
  std::size_t sent_ = 0;             // of staging_
  std::span<const std::byte> body_;  // of the frame whose header was staged last
};

}  // namespace lockstep::transport
