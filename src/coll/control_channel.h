// ControlChannel: frames over one control connection, never blocking. They are few, so each has a
// CRC-32C, whatever they travel over. Private to Control; one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sys/net.h"
#include "wire/frame.h"

namespace lockstep::coll {

class ControlChannel {
 public:
  ControlChannel(sys::Connection& connection, std::uint64_t generation) noexcept
      : connection_(connection), generation_(generation) {}

  /// Queues a frame. The queue has no bound of its own: Control sends a pulse only when it is
  /// empty, and a peer that reads nothing is given up after Timing::dead.
  void send(wire::FrameType type, std::span<const std::byte> payload);
  /// Writes what goes now.
  void flush() noexcept;
  /// Closes our side once everything is written; reading goes on.
  void finish() noexcept;
  [[nodiscard]] bool empty() const noexcept { return sent_ == queue_.size(); }

  /// The next whole frame, good until the next call; null: none now, or none ever (over()).
  const wire::FrameReader* next();
  /// Bytes have arrived since this was last asked.
  bool heard() noexcept { return std::exchange(heard_, false); }
  /// Nothing more will be read; writing may go on.
  [[nodiscard]] bool over() const noexcept { return !how_.empty(); }
  /// How it came to an end: "died: its control connection closed without a goodbye".
  [[nodiscard]] const std::string& how() const noexcept { return how_; }
  /// It did so because a frame was not what the peer had sent.
  [[nodiscard]] bool altered() const noexcept { return altered_; }
  /// What this process lacked, if that is how; else ok.
  [[nodiscard]] const Status& shortage() const noexcept { return shortage_; }
  [[nodiscard]] std::string address() const { return connection_.peer(); }

 private:
  bool refill();

  sys::Connection& connection_;
  std::uint64_t generation_;
  std::vector<std::byte> queue_;
  std::size_t sent_ = 0;
  bool deaf_ = false;
  bool finished_ = false;
  wire::FrameReader reader_{wire::Check::crc32c};
  std::array<std::byte, 1024> inbox_;
  std::span<const std::byte> unread_;  // of inbox_
  bool heard_ = false;
  bool altered_ = false;
  Status shortage_;
  std::string how_;
};

}  // namespace lockstep::coll
