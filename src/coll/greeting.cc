#include "coll/greeting.h"

#include <fmt/format.h>

#include "base/crc32c.h"
#include "wire/abort.h"

namespace lockstep::coll {

using sys::Transfer;

namespace {

/// The start of a record of a handshake.
bool is_tls(std::span<const std::byte> bytes) {
  return bytes[0] == std::byte{0x16} && bytes[1] == std::byte{0x03};
}

}  // namespace

void Greeting::send(wire::FrameType type, std::span<const std::byte> payload) {
  std::array<std::byte, wire::kHeaderBytes> header;
  wire::encode({.type = type,
                .generation = 0,
                .sequence = 0,
                .length = static_cast<std::uint32_t>(payload.size()),
                .crc = crc32c(payload)},
               header);
  outgoing_.insert(outgoing_.end(), header.begin(), header.end());
  outgoing_.insert(outgoing_.end(), payload.begin(), payload.end());
}

void Greeting::send(const Status& refusal) {
  send(wire::FrameType::abort,
       wire::encode({.standing = wire::Standing::verdict, .origin = 0, .cause = refusal}));
}

void Greeting::send_notice(std::string_view text) {
  send(wire::FrameType::notice, std::as_bytes(std::span(text.substr(0, wire::kMaxControlPayload))));
}

bool Greeting::flush() noexcept {
  while (sent_ < outgoing_.size()) {
    const auto [bytes, state] = connection_.write(std::span(outgoing_).subspan(sent_));
    sent_ += bytes;
    if (state != Transfer::State::open) return true;  // reading finds out why
    if (bytes == 0) return false;
  }
  return true;
}

bool Greeting::next() {
  if (over()) return false;
  if (!has_header_) {
    if (!fill(head_)) return false;
    if (const Status readable = wire::decode(head_, header_, wire::Check::crc32c); !readable.ok()) {
      foreign_version_ = wire::foreign_version(head_);
      how_ = foreign_version_ ? fmt::format(
                                    "it runs another version of lockstep, whose frames have "
                                    "version {}; this rank's have {}",
                                    *foreign_version_, wire::kFrameVersion)
             : is_tls(head_) ? "it speaks TLS: it was started with a key, and this rank without"
                             : readable.message();
      return false;
    }
    if (header_.type == wire::FrameType::data || header_.length > wire::kMaxControlPayload) {
      how_ = "it sent data before it was asked to";
      return false;
    }
    if (takes_ == Takes::hello && header_.type != wire::FrameType::hello) {
      how_ = "it did not greet first";
      return false;
    }
    payload_.resize(header_.length);
    has_header_ = true;
    filled_ = 0;
  }
  if (!fill(payload_)) return false;
  has_header_ = false;
  filled_ = 0;
  const Status intact = wire::verify(header_, payload_);
  how_ = intact.message();
  return intact.ok();
}

bool Greeting::fill(std::span<std::byte> place) {
  while (filled_ < place.size()) {
    const Transfer transfer = connection_.read(place.subspan(filled_));
    filled_ += transfer.bytes;
    if (transfer.state == Transfer::State::closed) {
      how_ = "its connection closed";
      hung_up_ = true;
      return false;
    }
    if (transfer.state == Transfer::State::broken) {
      how_ = connection_.error().message();
      hung_up_ = true;
      return false;
    }
    if (transfer.bytes == 0) return false;
  }
  return true;
}

}  // namespace lockstep::coll
