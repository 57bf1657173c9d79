#include "coll/control_channel.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/crc32c.h"
#include "transport/own_failure.h"

namespace lockstep::coll {

using sys::Transfer;

namespace {

bool belongs_to_control(wire::FrameType type) {
  using wire::FrameType;
  return type == FrameType::pulse || type == FrameType::abort || type == FrameType::departures ||
         type == FrameType::standings || type == FrameType::positions || type == FrameType::notice;
}

}  // namespace

void ControlChannel::send(wire::FrameType type, std::span<const std::byte> payload) {
  if (deaf_ || finished_) return;
  if (empty()) {
    queue_.clear();
    sent_ = 0;
  }
  const std::size_t start = queue_.size();
  queue_.resize(start + wire::kHeaderBytes + payload.size());
  wire::encode({.type = type,
                .generation = generation_,
                .sequence = 0,
                .length = static_cast<std::uint32_t>(payload.size()),
                .crc = crc32c(payload)},
               std::span(queue_).subspan(start).first<wire::kHeaderBytes>());
  std::copy(payload.begin(), payload.end(),
            queue_.begin() + static_cast<std::ptrdiff_t>(start + wire::kHeaderBytes));
}

void ControlChannel::flush() noexcept {
  while (!deaf_ && !empty()) {
    const auto [bytes, state] = connection_.write(std::span(queue_).subspan(sent_));
    sent_ += bytes;
    // What the peer has still said is worth more than this: reading finds the end.
    deaf_ = state != Transfer::State::open;
    if (bytes == 0) return;
  }
}

void ControlChannel::finish() noexcept {
  if (finished_ || deaf_ || !empty()) return;
  finished_ = true;
  connection_.shutdown_write();
}

const wire::FrameReader* ControlChannel::next() {
  using Event = wire::FrameReader::Event;
  while (!over()) {
    if (unread_.empty() && !refill()) return nullptr;
    const Event event = reader_.next(unread_);
    if (event == Event::more) continue;
    altered_ = event == Event::altered;
    if (event == Event::bad || event == Event::altered) {
      how_ = "sent an " + reader_.error().message();
    } else if (reader_.header().generation != generation_) {
      how_ = fmt::format("is in generation {}, not {}", reader_.header().generation, generation_);
    } else if (event == Event::data || !belongs_to_control(reader_.header().type)) {
      how_ = "sent something else on its control connection";
    } else {
      return &reader_;
    }
  }
  return nullptr;
}

bool ControlChannel::refill() {
  const Transfer transfer = connection_.read(inbox_);
  if (transfer.bytes > 0) {
    heard_ = true;
    unread_ = std::span(inbox_).first(transfer.bytes);
    return true;
  }
  if (transfer.state == Transfer::State::closed) {
    how_ = "died: its control connection closed without a goodbye";
  } else if (transfer.state == Transfer::State::broken) {
    const Status why = connection_.error();
    altered_ = why.kind() == ErrorKind::data_error;  // TLS looks at what it carries
    if (transport::is_own_shortage(why)) shortage_ = why;
    how_ = fmt::format("{} ({})",
                       altered_ ? "cannot be understood any more: what it sent was altered"
                                : "died: its control connection broke without a goodbye",
                       why.message());
  }
  return false;
}

}  // namespace lockstep::coll
