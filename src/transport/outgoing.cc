#include "transport/outgoing.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/crc32c.h"

namespace lockstep::transport {

void Outgoing::begin(const wire::Descriptor& descriptor) noexcept {
  assert(empty());
  descriptor_ = descriptor;
  announced_ = false;
}

void Outgoing::add(std::span<const std::byte> bytes) {
  // All queued spans have been taken over: start at the front again.
  if (first_ == queue_.size()) {
    queue_.clear();
    first_ = 0;
  }
  queue_.push_back(bytes);
}

std::uint64_t Outgoing::untouched() const noexcept {
  std::uint64_t bytes = body_.size();
  for (std::size_t i = first_; i < queue_.size(); ++i) bytes += queue_[i].size();
  return bytes;
}

sys::Transfer::State Outgoing::flush(sys::Connection& connection) noexcept {
  using State = sys::Transfer::State;
  for (;;) {
    while (sent_ < staged_ || !body_.empty()) {
      const std::size_t heads = staged_ - sent_;
      const auto [bytes, state] =
          heads == 0 ? connection.write(body_)
                     : connection.write_both({staging_.data() + sent_, heads}, body_);
      sent_ += std::min(bytes, heads);
      body_ = body_.subspan(bytes - std::min(bytes, heads));
      if (state != State::open) return State::broken;
      if (bytes == 0) return State::open;
    }
    if (first_ == queue_.size()) return State::open;
    stage();
  }
}

void Outgoing::stage() {
  staged_ = 0;
  sent_ = 0;
  if (!announced_) {
    std::array<std::byte, sizeof(wire::Descriptor)> descriptor;
    wire::encode(descriptor_, descriptor);
    stage_header(wire::FrameType::operation, descriptor);
    stage_bytes(descriptor);
    announced_ = true;
  }
  const std::size_t most =
      check_ == wire::Check::none ? wire::kMaxDataPayload : wire::kCheckedPayload;
  while (first_ < queue_.size() && room() >= wire::kHeaderBytes + kShort) {
    std::span<const std::byte>& next = queue_[first_];
    if (next.size() > kShort) {
      body_ = next.first(std::min(next.size(), most));
      stage_header(wire::FrameType::data, body_);
      next = next.subspan(body_.size());
      if (next.empty()) ++first_;
      return;
    }
    stage_header(wire::FrameType::data, next);
    stage_bytes(next);
    ++first_;
  }
}

void Outgoing::stage_header(wire::FrameType type, std::span<const std::byte> payload) noexcept {
  wire::Header header{.type = type,
                      .generation = generation_,
                      .sequence = descriptor_.sequence,
                      .length = static_cast<std::uint32_t>(payload.size())};
  if (check_ == wire::Check::crc32c) header.crc = crc32c(payload);
  wire::encode(header, std::span(staging_).subspan(staged_).first<wire::kHeaderBytes>());
  staged_ += wire::kHeaderBytes;
}

void Outgoing::stage_bytes(std::span<const std::byte> bytes) noexcept {
  std::memcpy(staging_.data() + staged_, bytes.data(), bytes.size());
  staged_ += bytes.size();
}

}  // namespace lockstep::transport
