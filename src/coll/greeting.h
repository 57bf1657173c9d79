// Greeting: frames over a connection whose later bytes belong to somebody else. It never reads
// beyond the frame it was asked for and never blocks; ranks that join use it, and listeners for the
// first frame of a caller. Every frame has a CRC-32C.
//
// Borrows the connection. One thread.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sys/net.h"
#include "wire/frame.h"
#include "wire/hello.h"

namespace lockstep::coll {

/// How long a call may go unanswered before it is made again: a name may have several addresses,
/// and one that does not answer makes way for the next.
inline constexpr auto kUnanswered = std::chrono::seconds(2);

class Greeting {
 public:
  /// `hello`: nothing but a Hello is taken, of whose size everybody knows.
  enum class Takes : std::uint8_t { anything, hello };
  explicit Greeting(sys::Connection& connection, Takes takes = Takes::anything) noexcept
      : connection_(connection), takes_(takes) {}

  void send(wire::FrameType type, std::span<const std::byte> payload);
  void send(const wire::Hello& hello) { send(wire::FrameType::hello, wire::encode(hello)); }
  void send(const Status& refusal);
  /// Text, cut off where a frame has no room for it.
  void send_notice(std::string_view text);
  /// Writes what goes now; true when nothing is left.
  bool flush() noexcept;

  /// True if a whole frame has arrived: type() and payload(), good until the next call.
  bool next();
  [[nodiscard]] wire::FrameType type() const noexcept { return header_.type; }
  [[nodiscard]] std::span<const std::byte> payload() const noexcept { return payload_; }
  /// The start of a frame of ours has arrived.
  [[nodiscard]] bool promising() const noexcept { return has_header_; }
  /// Nothing more will come; how() says why. A peer that refused has said so in a frame before.
  [[nodiscard]] bool over() const noexcept { return !how_.empty(); }
  [[nodiscard]] const std::string& how() const noexcept { return how_; }
  /// The connection ended, and nothing unreadable came before.
  [[nodiscard]] bool hung_up() const noexcept { return hung_up_; }
  /// The peer's version of frames, if that is why it is over.
  [[nodiscard]] std::optional<int> foreign_version() const noexcept { return foreign_version_; }
  [[nodiscard]] std::string address() const { return connection_.peer(); }

 private:
  bool fill(std::span<std::byte> place);

  sys::Connection& connection_;
  Takes takes_;
  std::vector<std::byte> outgoing_;
  std::size_t sent_ = 0;
  std::array<std::byte, wire::kHeaderBytes> head_;
  wire::Header header_;
  std::vector<std::byte> payload_;
  std::size_t filled_ = 0;
  bool has_header_ = false;
  std::string how_;
  bool hung_up_ = false;
  std::optional<int> foreign_version_;
};

}  // namespace lockstep::coll
